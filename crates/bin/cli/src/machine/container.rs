//! Limits that a container or a service manager has set: control groups of version 2, and memory of version 1.

use std::fs;
use std::path::{Path, PathBuf};

use stentor::runtime::{Quota, Room};
use stentor_support::bytes;

use super::Finding;

pub(super) fn limits() -> Finding {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    finding(of_group(Path::new("/sys/fs/cgroup"), &groups), Room::here().quota)
}

/// Beginning of the text of a memory limit.
const MEMORY: &str = "memory ";
const RAISE: &str = "nothing to do, unless a cluster does not fit: raise the limits where the container is started";

/// Returns the finding for the limits of version 2, which are `None` if they are not known, and for the memory limit of
/// version 1. Version 1 has a separate tree for memory, even beside version 2. Its limit is reported if version 2 has
/// no memory limit.
fn finding(limits: Option<Vec<String>>, quota: Option<Quota>) -> Finding {
    let what = "container limits";
    let has_memory = limits.iter().flatten().any(|limit| limit.starts_with(MEMORY));
    let memory = quota.filter(|_| !has_memory).map(|Quota { limit, left, file }| {
        format!("{MEMORY}{}, of which {} are left ({})", bytes(limit), bytes(left), file.display())
    });
    if limits.is_none() && memory.is_none() {
        return Finding::info(
            what,
            "not known: no control groups of version 2",
            "nothing to do, unless a cluster does not start",
        );
    }
    let all: Vec<String> = memory.into_iter().chain(limits.into_iter().flatten()).collect();
    if all.is_empty() { Finding::ok(what, "none") } else { Finding::info(what, all.join(", "), RAISE) }
}

/// Returns the limits of version 2 of the group that `/proc/self/cgroup` names, and of its ancestors. Returns `None` if
/// it names none.
fn of_group(root: &Path, groups: &str) -> Option<Vec<String>> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(above(root, group).iter().flat_map(|folder| of(folder)).collect())
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
    let memory = line("memory.max").map(|n| format!("{MEMORY}{}", n.parse().map_or(n.clone(), bytes)));
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
        let found = finding(of_group(&root, "1:name=systemd:/x\n0::/a/b\n"), None);
        let none = finding(of_group(&root.join("a/none"), "0::/\n"), None);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found.detail, "memory 8.0 GiB, 1.5 processors, 512 tasks, RDMA mlx5_0 hca_handle=2 hca_object=max");
        assert_eq!((none.state, none.detail.as_str()), (State::Ok, "none"));
    }

    #[test]
    fn version_1_limit_is_reported_unless_version_2_has_one() {
        let quota = || Some(Quota { file: "/cg/memory.limit_in_bytes".into(), limit: 64 << 20, left: 1 << 20 });
        let limits = |all: &[&str]| Some(all.iter().map(|limit| (*limit).to_owned()).collect());
        let memory = "memory 64.0 MiB, of which 1.0 MiB are left (/cg/memory.limit_in_bytes)";
        for unlimited in [limits(&[]), None] {
            let found = finding(unlimited, quota());
            assert_eq!((found.state, found.detail.as_str()), (State::Info, memory));
        }
        assert_eq!(finding(limits(&["memory 8.0 GiB", "9 tasks"]), quota()).detail, "memory 8.0 GiB, 9 tasks");
        assert_eq!(finding(limits(&["512 tasks"]), quota()).detail, format!("{memory}, 512 tasks"));
    }

    #[test]
    fn older_kernel_reports_unknown() {
        let found = finding(of_group(Path::new("/nonexistent"), "3:cpu:/x\n"), None);
        assert!(found.state == State::Info && found.detail.starts_with("not known"));
    }
}
