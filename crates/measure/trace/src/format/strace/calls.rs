//! The parts of a system call in strace's form: `name(argument, …) = result`.

use crate::error::Bad;
use crate::text::{number, time_ns};

/// The number of arguments that are parsed.
const ARGUMENTS: usize = 6;

/// A call that returned successfully.
pub(super) struct Call<'a> {
    pub(super) name: &'a [u8],
    arguments: [&'a [u8]; ARGUMENTS],
    /// The number returned.
    pub(super) result: u64,
    /// The annotation by `-y` of a returned descriptor.
    pub(super) result_path: Option<&'a [u8]>,
    /// The time in the call, with `-T`; otherwise 0.
    pub(super) elapsed_ns: u64,
}

/// A descriptor that is an argument.
#[derive(Clone, Copy)]
pub(super) struct Descriptor<'a> {
    pub(super) number: u32,
    /// The annotation by `-y`.
    pub(super) path: Option<&'a [u8]>,
}

impl<'a> Call<'a> {
    /// The call in `text`; `None` if it failed or returned no number.
    pub(super) fn parse(text: &'a [u8]) -> Result<Option<Call<'a>>, Bad> {
        let wrong = || Bad::field(text, "a system call, such as read(3, ...) = 4096");
        let open = memchr::memchr(b'(', text).ok_or_else(wrong)?;
        let (name, rest) = text.split_at_checked(open).ok_or_else(wrong)?;
        if name.is_empty() || !name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
            return Err(wrong());
        }
        // The result follows the last ` = ` after a parenthesis; there may be blanks between.
        let equals = memchr::memmem::rfind_iter(rest, b" = ");
        let mut split = equals.filter_map(|at| rest.split_at_checked(at));
        let ended = split.find_map(|(before, after)| {
            Some((before.trim_ascii_end().strip_suffix(b")")?, after.get(3..)?.trim_ascii()))
        });
        let (inside, result) = ended.ok_or_else(wrong)?;
        let (result, elapsed_ns) = elapsed(result).unwrap_or((result, 0));
        let digits = result.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(result.len());
        let (digits, after) = result.split_at_checked(digits).ok_or_else(wrong)?;
        // Errors are negative, and `?` stands for no result. Addresses are hexadecimal and are not needed.
        let Some(value) = number(digits) else { return Ok(None) };
        let result_path = after.strip_prefix(b"<").and_then(|path| path.get(..memchr::memrchr(b'>', path)?));
        let arguments = arguments(inside.get(1..).unwrap_or_default());
        Ok(Some(Call { name, arguments, result: value, result_path, elapsed_ns }))
    }

    /// The argument at `index`, or nothing.
    pub(super) fn argument(&self, index: usize) -> &'a [u8] {
        self.arguments.get(index).copied().unwrap_or_default()
    }

    /// The number that is the argument at `index`.
    pub(super) fn number(&self, index: usize) -> Option<u64> {
        number(self.argument(index))
    }

    /// The descriptor that is the argument at `index`.
    pub(super) fn descriptor(&self, index: usize) -> Option<Descriptor<'a>> {
        let argument = self.argument(index);
        let digits = argument.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(argument.len());
        let (digits, path) = argument.split_at_checked(digits)?;
        let path = path.strip_prefix(b"<").and_then(|path| path.strip_suffix(b">"));
        Some(Descriptor { number: u32::try_from(number(digits)?).ok()?, path })
    }

    /// The text between the quotes of the argument at `index`.
    pub(super) fn text(&self, index: usize) -> &'a [u8] {
        let argument = self.argument(index);
        let inside = argument.strip_prefix(b"\"").and_then(|text| text.get(..memchr::memrchr(b'"', text)?));
        inside.unwrap_or(argument)
    }

    /// Whether the argument at `index` has this flag among others.
    pub(super) fn has_flag(&self, index: usize, flag: &[u8]) -> bool {
        self.argument(index).split(|byte| *byte == b'|').any(|one| one == flag)
    }
}

/// A result before the seconds behind it, `4096 <0.000012>`, and these in nanoseconds.
fn elapsed(result: &[u8]) -> Option<(&[u8], u64)> {
    const SECOND_NS: u64 = 1_000_000_000;
    let at = memchr::memmem::rfind(result, b" <")?;
    let seconds = result.get(at + 2..)?.strip_suffix(b">")?;
    Some((result.get(..at)?, time_ns(seconds, SECOND_NS)?))
}

/// Whether the beginning of a call is that of one that creates a process or thread.
pub(super) fn makes_process(beginning: &[u8]) -> bool {
    [&b"clone("[..], b"clone3(", b"fork(", b"vfork("].iter().any(|call| beginning.starts_with(call))
}

/// Whether a process created by the call `text` shares its descriptors with its parent.
pub(super) fn shares_files(text: &[u8]) -> bool {
    memchr::memmem::find(text, b"CLONE_FILES").is_some()
}

/// The first arguments of a call: the texts between commas outside of quotes, brackets and paths of descriptors.
fn arguments(inside: &[u8]) -> [&[u8]; ARGUMENTS] {
    let mut arguments: [&[u8]; ARGUMENTS] = [&[]; ARGUMENTS];
    let mut rest = inside;
    for argument in &mut arguments {
        let end = argument_end(rest);
        let Some((first, after)) = rest.split_at_checked(end) else { break };
        *argument = first.trim_ascii();
        rest = after.get(1..).unwrap_or_default();
    }
    arguments
}

/// The end of the first argument of `rest`.
fn argument_end(rest: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    // Descriptors are numbers, or AT_FDCWD.
    let names_descriptor =
        |at: usize| rest.get(..at).and_then(<[u8]>::last).is_some_and(|byte| byte.is_ascii_digit() || *byte == b'D');
    while let Some(&byte) = rest.get(at) {
        match byte {
            b',' if depth == 0 => return at,
            b'"' => {
                at += 1;
                while let Some(&byte) = rest.get(at) {
                    match byte {
                        b'"' => break,
                        b'\\' => at += 2,
                        _ => at += 1,
                    }
                }
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            // The path of a descriptor ends with the argument.
            b'<' if names_descriptor(at) => {
                let behind = rest.get(at..).unwrap_or_default();
                at += memchr::memmem::find(behind, b">,").or_else(|| memchr::memchr(b'>', behind)).unwrap_or(0);
            }
            _ => {}
        }
        at += 1;
    }
    rest.len()
}
