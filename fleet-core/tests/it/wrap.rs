//! Wraps long lines, so that they fit into a source file.

/// Wraps lines at blanks; continuation lines are indented.
pub(crate) fn wrap(text: &str) -> String {
    const COLUMNS: usize = 90;
    let mut out = String::new();
    for line in text.lines() {
        let mut column = 0;
        for word in line.split(' ') {
            if column > 0 && column + 1 + word.chars().count() > COLUMNS {
                out.push_str("\n   ");
                column = 3;
            }
            if column > 0 {
                out.push(' ');
                column += 1;
            }
            out.push_str(word);
            column += word.chars().count();
        }
        out.push('\n');
    }
    out
}
