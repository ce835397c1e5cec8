//! Messages about connections to a member with another history.

use stentor_multicast::Contradiction;

/// Explains why a connection is refused, and what an operator can do.
pub(super) fn contradicted(why: &Contradiction, name: &str, group: &str) -> String {
    let Contradiction { known, said, .. } = why;
    format!(
        "{name} knows incarnation {said} of {group}, and here it is {known}: two histories began apart, and the connection is \
         refused; stop the process whose state is not needed and start it anew, or `stentor group reset --group {group}` \
         moves {group} above both"
    )
}

#[cfg(test)]
mod tests {
    use stentor_multicast::{GroupId, Incarnation};

    use super::*;

    #[test]
    fn both_histories_are_named() {
        let other = Incarnation { number: 1, tag: 10 };
        let why = Contradiction { group: GroupId(0), known: Incarnation::FIRST, said: other };
        let said = contradicted(&why, "g2.1", "g1");
        assert!(said.starts_with("g2.1 knows incarnation 1-0000000a of g1, and here it is 1-00000000"), "{said}");
    }
}
