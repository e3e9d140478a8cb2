//! docs/cli.md is what `--help` says. `cargo xtask docs` writes it again.

use std::path::Path;
use std::process::Command;

/// Which command: the words behind `nigh`.
type Name = Vec<String>;

fn help(command: &[String]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_nigh")).args(command).arg("--help").output().unwrap();
    assert!(output.status.success(), "{command:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The subcommands that a help text lists, with what it says of each.
fn listed(help: &str) -> Vec<(String, String)> {
    let mut listed: Vec<(String, String)> = Vec::new();
    for line in help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty()) {
        let words = line.split_whitespace().collect::<Vec<_>>();
        match line.as_bytes() {
            [b' ', b' ', letter, ..] if *letter != b' ' => listed.push((words[0].to_owned(), words[1..].join(" "))),
            _ => {
                let about = &mut listed.last_mut().unwrap().1;
                about.push(' ');
                about.push_str(&words.join(" "));
            }
        }
    }
    listed.retain(|(name, _)| name != "help");
    listed
}

/// Every command with its help, parents first, and what its parent says of it.
fn commands() -> Vec<(Name, String, Option<String>)> {
    let mut commands = vec![(Name::new(), help(&[]), None)];
    let mut at = 0;
    while at < commands.len() {
        let (parent, text, _) = &commands[at];
        let parts = listed(text).into_iter().map(|(name, about)| {
            let name = parent.iter().cloned().chain([name]).collect::<Vec<_>>();
            let text = help(&name);
            (name, text, Some(about))
        });
        let parts: Vec<_> = parts.collect();
        at += 1;
        commands.splice(at..at, parts);
    }
    commands
}

#[test]
fn the_reference_is_current() {
    let mut text = String::from("# Command line reference\n\nWritten by `cargo xtask docs` from what `--help` says.\n");
    for (command, help, _) in commands() {
        let name = ["nigh".to_owned()].into_iter().chain(command).collect::<Vec<_>>().join(" ");
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        text.push_str(&format!("\n## {name}\n\n```\n{}\n```\n", lines.join("\n")));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text, "docs/cli.md is not what --help says: run `cargo xtask docs`");
}

/// A doc comment of a flattened struct would take the place of what a command is for.
#[test]
fn help_4_begins_with_what_the_command_is_for() {
    let commands = commands();
    assert!(commands.len() > 30, "{} commands", commands.len());
    for (name, help, listed) in commands {
        let head = help.lines().take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        match listed {
            Some(listed) => assert_eq!(head, listed, "nigh {name:?}"),
            None => assert!(head.starts_with("A buffer cache"), "{head}"),
        }
        if !name.is_empty() {
            let manual = Command::new(env!("CARGO_BIN_EXE_nigh")).arg("man").args(&name).output().unwrap();
            let manual = String::from_utf8(manual.stdout).unwrap();
            let named = manual.lines().skip_while(|line| *line != ".SH NAME").nth(1).unwrap_or_default();
            let named = named.replace(r"\*(Aq", "'").replace('\\', "");
            assert!(named.ends_with(&head), "man {name:?}: {named:?} instead of {head:?}");
        }
    }
}
