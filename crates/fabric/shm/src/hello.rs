//! Admission of peers: comparison of the two ends' first messages.

use stentor_fabric::{ProcessId, differing_settings};

use crate::message::{FORMAT, Identity};
use stentor_host::Named;

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of cluster {}", self.name, self.cluster)
    }
}

/// Checks the hello of the other end, process `pid`. `expected` is the process that this end dialled; with `None` the
/// other end dialled, which only processes with larger ids do.
///
/// # Errors
/// Returns the reason, which names both sides and the remedy.
pub(crate) fn compare(mine: &Identity, theirs: &Identity, pid: i32, expected: Option<ProcessId>) -> Result<(), String> {
    let pid = Named(pid);
    let differ = |what: &str, mine_is: String, theirs_is: String, remedy: &str| {
        Err(format!("{what} differ: {mine} has {mine_is}, {theirs}, {pid}, has {theirs_is}; {remedy}"))
    };
    if theirs.format != FORMAT {
        let remedy = "run the same release of Stentor on both";
        return differ("shared-memory formats", FORMAT.to_string(), theirs.format.to_string(), remedy);
    }
    if theirs.version != mine.version {
        let remedy = "run the same release of Stentor on both";
        return differ("protocol versions", mine.version.to_string(), theirs.version.to_string(), remedy);
    }
    if theirs.cluster != mine.cluster {
        let remedy = "give each cluster a directory or a name of its own";
        return differ("clusters", mine.cluster.clone(), theirs.cluster.clone(), remedy);
    }
    if theirs.fingerprint != mine.fingerprint || theirs.processes != mine.processes {
        let count = |identity: &Identity| match identity.processes {
            _ if mine.processes == theirs.processes => String::new(),
            processes => format!(" with {processes} processes (members and clients)"),
        };
        let show = |identity: &Identity| format!("{:016x}{}", identity.fingerprint, count(identity));
        return differ(
            "configurations",
            show(mine),
            show(theirs),
            differing_settings(mine.processes, theirs.processes),
        );
    }
    let allowed = match expected {
        Some(expected) => theirs.process == expected,
        None => theirs.process > mine.process && theirs.process.0 < mine.processes,
    };
    if !allowed {
        return Err(format!(
            "{theirs}, {pid}, is not a process that {mine} may be connected to here; \
             give each process an id of its own"
        ));
    }
    Ok(())
}

/// Checks that the other end, process `pid`, runs as the same user, `mine`.
///
/// # Errors
/// Returns the reason.
pub(crate) fn compare_users(me: &Identity, mine: u32, pid: i32, theirs: u32) -> Result<(), String> {
    if mine == theirs {
        return Ok(());
    }
    let pid = Named(pid);
    Err(format!("{me} runs as user {mine}; {pid} runs as user {theirs} and is refused: run both as one user"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(process: u16) -> Identity {
        Identity {
            format: FORMAT,
            version: 3,
            fingerprint: 0xabc,
            process: ProcessId(process),
            processes: 4,
            cluster: "example".to_owned(),
            name: format!("g1.{process}"),
            life: 8,
        }
    }

    #[test]
    fn matching_peers_are_accepted() {
        assert_eq!(compare(&identity(0), &identity(1), 7, None), Ok(()));
        assert_eq!(compare(&identity(1), &identity(0), 7, Some(ProcessId(0))), Ok(()));
    }

    #[test]
    fn each_difference_is_refused_with_both_named() {
        let mine = identity(0);
        type Change = fn(&mut Identity);
        let cases: [(&str, Change); 7] = [
            ("formats", |theirs| theirs.format += 1),
            ("versions", |theirs| theirs.version += 1),
            ("clusters", |theirs| theirs.cluster.push('2')),
            ("configurations", |theirs| theirs.fingerprint += 1),
            ("configurations", |theirs| theirs.processes += 1),
            ("some of these settings differ: `fabric`", |theirs| theirs.fingerprint += 1),
            ("5 processes (members and clients); the number of members", |theirs| theirs.processes += 1),
        ];
        for (what, change) in cases {
            let mut theirs = identity(1);
            change(&mut theirs);
            let reason = compare(&mine, &theirs, 77, None).unwrap_err();
            for part in [what, "g1.0", "g1.1", "77"] {
                assert!(reason.contains(part), "{part} in: {reason}");
            }
        }
    }

    #[test]
    fn another_user_is_refused() {
        assert_eq!(compare_users(&identity(0), 1000, 7, 1000), Ok(()));
        for (mine, theirs) in [(1000, 1001), (1000, 0), (0, 1000)] {
            let reason = compare_users(&identity(0), mine, 7, theirs).unwrap_err();
            assert!(reason.contains("g1.0") && reason.contains(&format!("user {theirs} ")), "{reason}");
        }
    }

    #[test]
    fn the_wrong_process_is_refused() {
        assert!(compare(&identity(1), &identity(1), 7, None).is_err(), "the same id");
        assert!(compare(&identity(1), &identity(0), 7, None).is_err(), "the smaller does not dial");
        assert!(compare(&identity(1), &identity(4), 7, None).is_err(), "not in the cluster");
        assert!(compare(&identity(2), &identity(1), 7, Some(ProcessId(0))).is_err(), "not the one dialled");
    }
}
