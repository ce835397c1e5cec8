//! Patterns of keys with the syntax of Redis: `*`, `?`, `[a-c]`, `[^a]` and `\` before a literal byte.

/// Returns whether a pattern matches a whole text. Makes at most one attempt for each pair of a `*` in the pattern and
/// a byte of the text.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // Positions in the pattern and in the text at which to retry after a mismatch. The position in the pattern is the
    // one after the last star.
    let mut again: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            again = Some((at, from));
            continue;
        }
        match text.get(from) {
            None if at == pattern.len() => return true,
            None => return false,
            Some(byte) => match one(&pattern[at..], *byte) {
                Some(length) => (at, from) = (at + length, from + 1),
                None => {
                    let Some((behind, start)) = again else { return false };
                    again = Some((behind, start + 1));
                    (at, from) = (behind, start + 1);
                }
            },
        }
    }
}

/// Returns the number of bytes of the pattern that match this byte, or `None` if they do not match it.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [b'[', rest @ ..] => {
            let (negated, mut at) = if rest.first() == Some(&b'^') { (true, 1) } else { (false, 0) };
            let mut found = false;
            while let Some(first) = rest.get(at).filter(|first| **first != b']') {
                match rest.get(at..at + 3) {
                    Some([from, b'-', to]) if *to != b']' => {
                        found |= (*from.min(to)..=*from.max(to)).contains(&byte);
                        at += 3;
                    }
                    _ => {
                        found |= *first == byte;
                        at += 1;
                    }
                }
            }
            (found != negated).then_some((at + 2).min(pattern.len()))
        }
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text) in [
            ("*", ""),
            ("*", "abc"),
            ("h?llo", "hello"),
            ("h*llo", "heeeello"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hallo"),
            ("h[a-b]llo", "hbllo"),
            ("a\\*b", "a*b"),
            ("*a*b", "xaxxab"),
            ("user:*:name", "user:1:2:name"),
            ("[a", "a"),
        ] {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("h?llo", "hllo"),
            ("h[^e]llo", "hello"),
            ("a\\*b", "axb"),
            ("*a*b", "xaxxa"),
            ("[]", "a"),
            ("a", "ab"),
        ] {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_do_not_take_long() {
        assert!(!matches("a*".repeat(1000).as_bytes(), "a".repeat(900).as_bytes()));
        assert!(!matches(b"*a*a*a*a*a*a*a*a*b", "a".repeat(60_000).as_bytes()));
    }
}
