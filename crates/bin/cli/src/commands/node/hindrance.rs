//! Why a group whose members have no memory of it does not begin.

pub(super) use stentor::runtime::told_hindrance as told;
use stentor_fabric::ProcessId;
use stentor_multicast::{Contradiction, Hindrance, Replica};

/// Returns what keeps a group from beginning, other than members that are missing: those are reported by themselves.
pub(super) fn beside_missing(replica: &Replica) -> Option<Hindrance> {
    replica.hindrance().filter(|hindrance| !matches!(hindrance, Hindrance::Missing(_)))
}

/// Returns what an operator can do about a hindrance. `None`: nothing but wait.
pub(super) fn remedy<'a>(hindrance: &Hindrance, group: &str, name: impl Fn(ProcessId) -> &'a str) -> Option<String> {
    let resets = format!("`stentor group reset --group {group}`");
    match hindrance {
        Hindrance::Remembered { by, .. } => Some(format!(
            "stop {0} and start it anew, if it has nothing that is needed, or {resets} says what is lost and goes on without \
             waiting for that",
            name(*by)
        )),
        Hindrance::Missing(_) => None,
        Hindrance::Operator => Some(format!("{resets} lets it begin")),
    }
}

/// Explains why a connection is refused, and what an operator can do.
pub(super) fn contradicted(why: &Contradiction, name: &str, group: &str) -> String {
    let Contradiction { known, said, .. } = why;
    format!(
        "{name} knows incarnation {said} of {group}, and here it is {known}: two histories began apart, and nothing goes over \
         this connection; stop the one that has nothing that is needed and start it anew, or `stentor group reset --group {group}` \
         moves {group} above both"
    )
}

#[cfg(test)]
mod tests {
    use stentor_multicast::{GroupId, Incarnation};

    use super::*;

    #[test]
    fn who_remembers_is_named_with_a_remedy() {
        let hindrance = Hindrance::Remembered { by: ProcessId(3), incarnation: Incarnation::FIRST };
        let name = |_| "g2.1";
        assert_eq!(told(&hindrance, name), "g2.1 remembers incarnation 1-00000000 of it");
        let remedy = remedy(&hindrance, "g1", name).expect("there is one");
        assert!(remedy.starts_with("stop g2.1 and start it anew") && remedy.contains("group reset --group g1"));
        let other = Incarnation { number: 1, tag: 10 };
        let why = Contradiction { group: GroupId(0), known: Incarnation::FIRST, said: other };
        let said = contradicted(&why, "g2.1", "g1");
        assert!(said.starts_with("g2.1 knows incarnation 1-0000000a of g1, and here it is 1-00000000"), "{said}");
        assert_eq!(super::remedy(&Hindrance::Missing(ProcessId(1)), "g1", name), None);
    }
}
