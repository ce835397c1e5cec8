//! A process that runs, in words, and why a second one of its name is refused: the same of a node and of a command.

use std::fmt::Write as _;

use stentor_host::About;

/// Why a second process of a name is refused, and what to do. `address`: where it is now, by the configuration.
#[must_use]
pub fn told_running(
    name: &str,
    cluster: &str,
    pid: i32,
    about: Option<&About>,
    address: Option<&str>,
) -> (String, String) {
    let mut what = format!("`{name}` of cluster `{cluster}` is running already, {}", as_pid(pid));
    let Some(about) = about else { return (what, "stop that process, or start another one".to_owned()) };
    // Of one in a PID namespace that is not seen from here, no pid is known.
    let kill = if pid > 0 { format!(", or `kill {pid}`") } else { String::new() };
    let _ = write!(what, ", {}", told(about, address));
    let remedy = format!(
        "stop that process (`stentor stop --config {} --directory {} --id {name}`{kill}), or start another one",
        about.file.display(),
        about.directory.display()
    );
    (what, remedy)
}

/// What a process was told, and where the configuration has another address for it now.
pub(super) fn told(about: &About, now: Option<&str>) -> String {
    let mut text = format!("with configuration {} and sockets in {}", about.file.display(), about.directory.display());
    let then = about.addresses.get(about.me.index());
    if let (Some(then), Some(now)) = (then, now)
        && then != now
    {
        text += &format!(", at {then}, which is {now} in this configuration");
    }
    text
}

/// A running process in words: its pid, or why it has none here.
#[must_use]
pub fn as_pid(pid: i32) -> String {
    match pid {
        0 => "in another PID namespace (a container), where it has no pid that is known here".to_owned(),
        pid => format!("as pid {pid}"),
    }
}

#[cfg(test)]
mod tests {
    use stentor_fabric::ProcessId;

    use super::*;

    #[test]
    fn a_second_process_is_refused_with_what_the_first_was_told_and_how_to_end_it() {
        let (file, directory) = ("/a/cluster.toml".into(), "/run".into());
        let addresses = ["h:1".to_owned(), "h:2".to_owned()].into();
        let (cluster, name, meeting) = ("c".to_owned(), "b".to_owned(), "m".to_owned());
        let about = About { cluster, name, file, directory, meeting, me: ProcessId(1), addresses };
        let (what, remedy) = told_running("b", "c", 7, Some(&about), Some("h:3"));
        let expected = "`b` of cluster `c` is running already, as pid 7, with configuration /a/cluster.toml and sockets in /run, at h:2, \
                        which is h:3 in this configuration";
        assert_eq!(what, expected);
        let expected = "stop that process (`stentor stop --config /a/cluster.toml --directory /run --id b`, or `kill 7`), or start \
                        another one";
        assert_eq!(remedy, expected);
        assert!(!told_running("b", "c", 0, Some(&about), None).1.contains("kill"), "no pid of it is known here");
        assert_eq!(told_running("b", "c", 7, None, None).1, "stop that process, or start another one");
    }
}
