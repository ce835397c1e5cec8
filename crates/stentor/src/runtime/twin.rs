//! Descriptions of a running process, and the refusal of a second one with its name. A node and the `stentor` command
//! share them.

use std::fmt::Write as _;

use stentor_host::About;

/// Returns why a second process with a name is refused, and the remedy. `address` is its address in the current
/// configuration.
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
    // A process in an invisible PID namespace has no known process id.
    let kill = if pid > 0 { format!(", or `kill {pid}`") } else { String::new() };
    let _ = write!(what, ", {}", told(about, address));
    let remedy = format!(
        "stop that process (`stentor stop --config {} --directory {} --id {name}`{kill}), or start another one",
        about.file.display(),
        about.directory.display()
    );
    (what, remedy)
}

/// Describes the settings of a process, and its address in the current configuration if that differs.
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

/// Describes a running process by its pid, or why it has none here.
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
    fn second_process_is_refused_with_the_settings_of_the_first_and_a_remedy() {
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
        assert!(!told_running("b", "c", 0, Some(&about), None).1.contains("kill"), "its pid is unknown here");
        assert_eq!(told_running("b", "c", 7, None, None).1, "stop that process, or start another one");
    }
}
