//! Blanks out comments, strings and characters.

/// Replaces every comment and text literal by blanks, keeping line ends.
pub(super) fn code_only(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let after_word = code.chars().next_back().is_some_and(super::is_word);
        let hidden = hidden_length(rest, after_word);
        if hidden == 0 {
            code.push(next);
            rest = &rest[next.len_utf8()..];
        } else {
            code.extend(rest[..hidden].bytes().map(|b| if b == b'\n' { '\n' } else { ' ' }));
            rest = &rest[hidden..];
        }
    }
    code
}

/// The number of bytes of comment or literal at the start of `rest`; 0 if it starts with code.
fn hidden_length(rest: &str, after_word: bool) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment(rest);
    }
    let prefix = if after_word { 0 } else { literal_prefix(rest) };
    let body = &rest[prefix..];
    let raw = rest[..prefix].ends_with('r');
    match body.chars().next() {
        Some('"') if !raw => prefix + string(body),
        Some('"' | '#') if raw => raw_string(body).map_or(0, |length| prefix + length),
        Some('\'') if !raw => character(body).map_or(0, |length| prefix + length),
        _ => 0,
    }
}

/// The length of the letters before a quote: `b"…"`, `c"…"`, `r"…"`, `br"…"`, `cr"…"`, `b'…'`.
fn literal_prefix(rest: &str) -> usize {
    ["br", "cr", "b", "c", "r"].iter().find(|p| rest.starts_with(**p)).map_or(0, |p| p.len())
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        let (step, change) = match rest.as_bytes()[at..] {
            [b'/', b'*', ..] => (2, 1),
            [b'*', b'/', ..] => (2, -1),
            _ => (1, 0),
        };
        at += step;
        depth = depth.saturating_add_signed(change);
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn string(body: &str) -> usize {
    let mut escaped = false;
    for (at, b) in body.bytes().enumerate().skip(1) {
        match b {
            b'"' if !escaped => return at + 1,
            _ => escaped = b == b'\\' && !escaped,
        }
    }
    body.len()
}

/// `None` for a raw identifier such as `r#type`.
fn raw_string(body: &str) -> Option<usize> {
    let hashes = body.bytes().take_while(|&b| b == b'#').count();
    let text = body[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", &body[..hashes]);
    let length = text.find(&end).map_or(text.len(), |at| at + end.len());
    Some(hashes + 1 + length)
}

/// `None` for a lifetime such as `'a`.
fn character(body: &str) -> Option<usize> {
    let mut chars = body.char_indices().skip(1);
    let (_, first) = chars.next()?;
    if first == '\\' {
        return Some(3 + body.get(3..)?.find('\'')? + 1);
    }
    let (at, quote) = chars.next()?;
    (quote == '\'').then_some(at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_blanked_and_code_stays() {
        let table = [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"f("x{", 1)"#, "f(    , 1)"),
            (r#"f("\"{", 1)"#, "f(     , 1)"),
            (r##"f(r#"a"{"#, 1)"##, "f(        , 1)"),
            (r#"f(br"\", 1)"#, "f(     , 1)"),
            (r"f('{', b'}', '\'', '\u{7b}')", "f(   ,     ,     ,         )"),
            ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
            ("let r#type = rib\"x\";", "let r#type = rib   ;"),
            ("\"a\nb\" c", "  \n   c"),
            ("\"unended {", "          "),
        ];
        for (text, code) in table {
            assert_eq!(code_only(text), code, "{text}");
        }
    }
}
