//! Limits that a container or a service manager has set: control groups of version 2, and memory of version 1.

use std::fs;
use std::path::{Path, PathBuf};

use stentor::runtime::{Quota, Room};
use stentor_support::bytes;

use super::Finding;

pub(super) fn limits() -> Finding {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    with_memory(finding(Path::new("/sys/fs/cgroup"), &groups), Room::here().quota)
}

/// Adds the memory limit of control groups of version 1, if there is one and the finding has no memory limit. These groups
/// have a separate tree for memory, even beside version 2.
fn with_memory(found: Finding, quota: Option<Quota>) -> Finding {
    let told = found.detail.contains("memory ");
    match quota.filter(|_| !told) {
        None => found,
        Some(Quota { limit, left, file }) => {
            let (limit, left, file) = (bytes(limit), bytes(left), file.display());
            let memory = format!("memory {limit}, of which {left} are left ({file})");
            let has_limits = found.remedy.as_deref() == Some(RAISE);
            let others = if has_limits { format!(", {}", found.detail) } else { String::new() };
            Finding::info(found.what, memory + &others, RAISE)
        }
    }
}

const RAISE: &str = "nothing to do, unless a cluster does not fit: raise the limits where the container is started";

fn finding(root: &Path, groups: &str) -> Finding {
    let what = "container limits";
    let Some(group) = groups.lines().find_map(|line| line.strip_prefix("0::")) else {
        return Finding::info(
            what,
            "not known: no control groups of version 2",
            "nothing to do, unless a cluster does not start",
        );
    };
    let limits: Vec<_> = above(root, group).iter().flat_map(|folder| of(folder)).collect();
    if limits.is_empty() {
        return Finding::ok(what, "none");
    }
    Finding::info(what, limits.join(", "), RAISE)
}

/// Returns the group's directory and its ancestors, because the limits of each apply.
fn above(root: &Path, group: &str) -> Vec<PathBuf> {
    let folder = root.join(group.trim_start_matches('/'));
    folder.ancestors().take_while(|folder| folder.starts_with(root)).map(Path::to_owned).collect()
}

fn of(folder: &Path) -> Vec<String> {
    let line = |file: &str| {
        let text = fs::read_to_string(folder.join(file)).ok()?;
        let text = text.trim().to_owned();
        (!text.is_empty() && !text.starts_with("max")).then_some(text)
    };
    let memory = line("memory.max").map(|n| format!("memory {}", n.parse().map_or(n.clone(), bytes)));
    let processes = line("pids.max").map(|n| format!("{n} tasks"));
    let processor = line("cpu.max").and_then(|text| {
        let (quota, period) = text.split_once(' ')?;
        Some(format!("{:.1} processors", quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?))
    });
    let rdma = line("rdma.max")
        .map(|text| text.lines().filter(|l| is_limited(l)).map(|l| format!("RDMA {l}")).collect::<Vec<_>>());
    memory.into_iter().chain(processes).chain(processor).chain(rdma.into_iter().flatten()).collect()
}

/// Returns whether a line like `mlx5_0 hca_handle=2 hca_object=max` contains a limit.
fn is_limited(device: &str) -> bool {
    device.split_whitespace().skip(1).any(|limit| !limit.ends_with("=max"))
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn limits_of_the_cgroup_and_its_parents_are_reported() {
        let root = std::env::temp_dir().join(format!("stentor-cgroup-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        for (file, text) in [
            ("a/b/memory.max", "8589934592\n"),
            ("a/b/cpu.max", "150000 100000\n"),
            ("a/b/pids.max", "max\n"),
            ("a/pids.max", "512\n"),
            ("a/rdma.max", "mlx5_0 hca_handle=2 hca_object=max\nmlx5_1 hca_handle=max hca_object=max\n"),
        ] {
            fs::write(root.join(file), text).unwrap();
        }
        let found = finding(&root, "1:name=systemd:/x\n0::/a/b\n");
        let none = finding(&root.join("a/none"), "0::/\n");
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found.detail, "memory 8.0 GiB, 1.5 processors, 512 tasks, RDMA mlx5_0 hca_handle=2 hca_object=max");
        assert_eq!((none.state, none.detail.as_str()), (State::Ok, "none"));
    }

    #[test]
    fn version_1_limit_is_reported_unless_version_2_has_one() {
        let quota = || Some(Quota { file: "/cg/memory.limit_in_bytes".into(), limit: 64 << 20, left: 1 << 20 });
        let none = || Finding::ok("container limits", "none");
        let found = with_memory(none(), quota());
        assert_eq!(found.state, State::Info);
        assert_eq!(found.detail, "memory 64.0 MiB, of which 1.0 MiB are left (/cg/memory.limit_in_bytes)");
        assert_eq!(with_memory(none(), None), none());
        let second = Finding::info("container limits", "memory 8.0 GiB", RAISE);
        assert_eq!(with_memory(second.clone(), quota()), second);
        let tasks = with_memory(Finding::info("container limits", "512 tasks", RAISE), quota());
        assert!(tasks.detail.starts_with("memory 64.0 MiB") && tasks.detail.ends_with("), 512 tasks"), "{tasks:?}");
    }

    #[test]
    fn older_kernel_reports_unknown() {
        let found = finding(Path::new("/nonexistent"), "3:cpu:/x\n");
        assert!(found.state == State::Info && found.detail.starts_with("not known"));
    }
}
