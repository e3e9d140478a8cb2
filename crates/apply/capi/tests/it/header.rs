//! The header and the library agree.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::process::Command;

use nigh::{nigh_completion, nigh_device, nigh_pinned, nigh_pinned_mut, nigh_request};

use crate::built::{Built, installed, library, own, run};

fn header() -> String {
    std::fs::read_to_string(own("include/nigh.h")).unwrap()
}

/// The sources of the library, one after the other.
fn sources() -> String {
    let files = std::fs::read_dir(own("src")).unwrap();
    files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect()
}

/// `text` without what is between each `open` and the next `close`.
fn without(text: &str, open: &str, close: &str) -> String {
    let mut parts = text.split(open);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + " " + part.split_once(close).map_or("", |(_, rest)| rest))
}

/// `const char *` for a parameter `const char *name`.
fn without_name(parameter: &str) -> String {
    let name_from = parameter.rfind(|at: char| !at.is_alphanumeric() && at != '_').map_or(0, |at| at + 1);
    let kind = parameter[..name_from].trim();
    // `void` alone has no name.
    if kind.is_empty() { parameter.to_owned() } else { kind.replace("* *", "**") }
}

/// The functions of the header, as name and the types of result and parameters.
fn declared() -> BTreeMap<String, String> {
    let header = without(&without(&header(), "/*", "*/"), "typedef struct", ";").replace('\n', " ");
    let calls = header.split(';').filter(|part| part.contains("nigh_") && part.contains('('));
    let function = |declaration: &str| {
        let (head, parameters) = declaration.split_once('(')?;
        let at = head.rfind("nigh_")?;
        // A member of a structure is no function of the library.
        let result = head[..at].split_whitespace().rev().take_while(|word| !word.contains('{')).collect::<Vec<_>>();
        let result = result.into_iter().rev().collect::<Vec<_>>().join(" ");
        let parameters = parameters.trim_end().strip_suffix(')')?;
        let kinds: Vec<String> = parameters.split(',').map(|parameter| without_name(parameter.trim())).collect();
        Some((head[at..].to_owned(), format!("{result} ({})", kinds.join(", "))))
    };
    calls.filter_map(function).collect()
}

/// The C type of a Rust one.
fn in_c(kind: &str) -> String {
    let plain = |kind: &str| {
        let known = [
            ("c_int", "int"),
            ("c_char", "char"),
            ("c_void", "void"),
            ("usize", "size_t"),
            ("u32", "uint32_t"),
            ("u64", "uint64_t"),
        ];
        known.iter().find(|(rust, _)| *rust == kind).map_or(kind, |(_, c)| c).to_owned()
    };
    let (mut kind, mut stars, mut is_const) = (kind.trim(), String::new(), false);
    while let Some((pointer, rest)) = kind.split_once(' ').filter(|(pointer, _)| pointer.starts_with('*')) {
        (is_const, kind) = (pointer == "*const", rest);
        stars.push('*');
    }
    let constant = if is_const { "const " } else { "" };
    let space = if stars.is_empty() { "" } else { " " };
    format!("{constant}{}{space}{stars}", plain(kind))
}

/// The functions of the library, in the same form.
fn defined() -> BTreeMap<String, String> {
    let sources = sources();
    let functions = sources.split("#[unsafe(no_mangle)]").skip(1).map(|after| {
        let (head, rest) = after.split_once('(').unwrap();
        let (_, name) = head.rsplit_once(' ').unwrap();
        assert!(head.contains("pub unsafe extern \"C\" fn") || head.contains("pub extern \"C\" fn"), "{head}");
        let (parameters, rest) = rest.split_once(')').unwrap();
        let result = rest.split_once('{').unwrap().0.trim().strip_prefix("->").map_or("void".to_owned(), in_c);
        let kinds = parameters.split(',').filter_map(|parameter| Some(in_c(parameter.split_once(':')?.1)));
        let mut kinds: Vec<String> = kinds.collect();
        if kinds.is_empty() {
            kinds.push("void".to_owned());
        }
        (name.to_owned(), format!("{result} ({})", kinds.join(", ")))
    });
    functions.collect()
}

#[test]
fn functions_have_the_same_parameters() {
    let (declared, defined) = (declared(), defined());
    assert!(declared.len() > 30, "{declared:?}");
    assert_eq!(declared, defined);
}

/// Names and values of constants, found by what is in front of the name and of the value.
fn constants(text: &str, before: &str, middle: &str) -> BTreeMap<String, u32> {
    let lines = text.lines().filter_map(|line| {
        let (name, value) = line.strip_prefix(before)?.split_once(middle)?;
        Some((name.to_owned(), value.trim_end_matches(';').parse().ok()?))
    });
    lines.filter(|(name, _)| name.starts_with("NIGH_")).collect()
}

#[test]
fn constants_have_the_same_values() {
    let (header, sources) = (header(), sources());
    let declared = constants(&header, "#define ", " ");
    assert!(declared.len() > 10, "{declared:?}");
    assert_eq!(declared, constants(&sources, "pub const ", ": u32 = "));
}

#[test]
fn structures_have_the_same_layout() {
    if !installed("structures_have_the_same_layout", &["gcc"]) {
        return;
    }
    let mut ours = String::new();
    macro_rules! layout {
        ($kind:ident: $($field:ident)*) => {
            ours += &format!("{} {}\n", stringify!($kind), size_of::<$kind>());
            $(ours += &format!("{}.{} {}\n", stringify!($kind), stringify!($field), offset_of!($kind, $field));)*
        };
    }
    layout!(nigh_pinned: data length opaque);
    layout!(nigh_pinned_mut: data length opaque);
    layout!(nigh_completion: user result reserved pinned);
    layout!(nigh_request: action parts_count offset length parts opaque);
    layout!(nigh_device: size name name_length threads flags user bytes perform close);
    let built = Built::new();
    assert_eq!(run(&mut Command::new(built.compile("layout.c", &[]))), ours);
}

/// A program that includes only the header, without any macro of the system.
#[test]
fn the_header_is_c99_and_c_plus_plus_17() {
    for (compiler, language, standard) in [("gcc", "c", "-std=c99"), ("g++", "c++", "-std=c++17")] {
        if installed("the_header_is_c99_and_c_plus_plus_17", &[compiler]) {
            let mut command = Command::new(compiler);
            command.args([standard, "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", language]);
            run(command.arg(own("include/nigh.h")));
        }
    }
}

/// The programs of the tests call every function.
#[test]
fn every_function_is_called_by_a_program() {
    let files = std::fs::read_dir(own("tests/c")).unwrap();
    let programs: String = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    for name in declared().keys() {
        assert!(programs.contains(&format!("{name}(")), "no program of tests/c calls {name}");
    }
}

#[test]
fn the_library_shows_nothing_else() {
    if !installed("the_library_shows_nothing_else", &["nm"]) {
        return;
    }
    let shown = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library().join("libnigh.so")));
    let mut shown: Vec<&str> = shown.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    shown.sort_unstable();
    assert_eq!(shown, declared().keys().collect::<Vec<_>>());
}
