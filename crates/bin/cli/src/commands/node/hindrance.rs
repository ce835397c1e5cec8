//! Why a group whose members have no memory of it does not begin.

use stentor_fabric::ProcessId;
use stentor_multicast::Hindrance;

/// Says it in a few words.
pub(super) fn told<'a>(hindrance: &Hindrance, name: impl Fn(ProcessId) -> &'a str) -> String {
    match hindrance {
        Hindrance::Remembered { by, incarnation } => format!("{} remembers incarnation {incarnation} of it", name(*by)),
        Hindrance::Missing(process) => format!("{} was not heard", name(*process)),
        Hindrance::Operator => "total_loss = \"refuse\" leaves it to the operator".to_owned(),
    }
}

/// What to do about it. `None`: only to wait.
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

#[cfg(test)]
mod tests {
    use stentor_multicast::Incarnation;

    use super::*;

    #[test]
    fn who_remembers_is_named_with_a_remedy() {
        let hindrance = Hindrance::Remembered { by: ProcessId(3), incarnation: Incarnation::FIRST };
        let name = |_| "g2.1";
        assert_eq!(told(&hindrance, name), "g2.1 remembers incarnation 1-00000000 of it");
        let remedy = remedy(&hindrance, "g1", name).expect("there is one");
        assert!(remedy.starts_with("stop g2.1 and start it anew") && remedy.contains("group reset --group g1"));
        assert_eq!(super::remedy(&Hindrance::Missing(ProcessId(1)), "g1", name), None);
    }
}
