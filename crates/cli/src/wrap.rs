//! Text in lines that fit a terminal.

/// Columns of the terminal that standard output is; `None` for anything else.
pub(crate) fn terminal_columns() -> Option<usize> {
    let columns = rustix::termios::tcgetwinsize(std::io::stdout()).map(|size| usize::from(size.ws_col));
    columns.ok().filter(|&columns| columns > 0)
}

/// Adds `words` in lines of at most `width`, where no word is longer.
pub(crate) fn wrapped(text: &mut String, words: &str, width: usize) {
    for line in words.lines() {
        text.push_str(&broken(line, width, 0));
        text.push('\n');
    }
}

/// `line` in lines of at most `width` characters, all but the first indented. Words are not cut.
pub(crate) fn broken(line: &str, width: usize, indent: usize) -> String {
    let mut lines = String::new();
    let mut column = indent;
    for word in line.split(' ') {
        let length = word.chars().count();
        if column > indent && column + 1 + length > width {
            lines.push('\n');
            lines.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if column > indent {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += length;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_and_words_stay_whole() {
        assert_eq!(broken("one two three four", 12, 4), "one two\n    three\n    four");
        assert_eq!(broken("a 5.00\u{a0}% share", 8, 0), "a 5.00\u{a0}%\nshare");
        assert_eq!(broken("immeasurably", 4, 2), "immeasurably");
        let mut text = String::from("head: ");
        wrapped(&mut text, "one two\nthree", 5);
        assert_eq!(text, "head: one\ntwo\nthree\n");
    }
}
