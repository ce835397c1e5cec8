//! Finds sentences whose subject is a clause without a head: "Who sleeps is woken" instead of "A sleeping process is
//! woken".

use std::sync::LazyLock;

use regex::Regex;

/// Beginnings of sentences with such a clause, or with words that refer to nothing before their subject.
const BEGINS: &str = r"(?ix-u)^[(\x22*]*(?:
    (?:(?:to|of|from|for|with|by|at|in|on)\s+)?(?:who|whom|whose|whoever|whomever|what|whatever)\b
  | so\s+(?:many|much)\b
  | how\s+(?:many|much|long|often|far)\b
  | of\s+(?:the|a|an|all|each|every|those|these|its|which|both|several)\b
  | the\s+same(?:[,.:;]|\s+(?:with|for|as|in|on|at|of|without|if|but|by|from|where|when|to)\b)
)";

/// Clauses of that kind inside sentences. A relative clause follows a noun, and not one of these words.
const HAS: &str = r"(?ix-u)(?:[;:]|\b(?:and|but|if|that|because|for|from|to|than|by|with|while|when|as|so|of|is|are|tells?|lets?|or))
    \s+who\s+(?:is|are|was|were|has|have|had|does|do|did|can|may|must|will|would|[a-z]+s)\b";

static PATTERNS: LazyLock<[Regex; 2]> =
    LazyLock::new(|| [BEGINS, HAS].map(|pattern| Regex::new(pattern).expect("a pattern that compiles")));

/// Returns whether a sentence is headless. A question is not.
pub(super) fn is_headless(sentence: &str) -> bool {
    !sentence.ends_with('?') && PATTERNS.iter().any(|pattern| pattern.is_match(sentence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headless_sentences_are_distinguished_from_others() {
        for sentence in [
            "Who sleeps is woken.",
            "To whom nothing gets through nobody tells anything.",
            "What is lost with memory.",
            "So many bytes, a multiple of 8.",
            "Of the silence so many parts are asked for in turn.",
            "The same, with a client.",
            "The same with a client.",
            "The time passes of who is silent.",
            "How many bytes it has.",
        ] {
            assert!(is_headless(sentence), "{sentence}");
        }
        for sentence in [
            "A process that sleeps is woken.",
            "The same token must never be returned twice.",
            "What is it?",
            "The leader, who is alive, answers.",
            "Somebody who waits is woken.",
            "Office hours are whatever they are.",
            "Soon many bytes arrive.",
        ] {
            assert!(!is_headless(sentence), "{sentence}");
        }
    }
}
