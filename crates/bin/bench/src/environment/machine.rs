//! Settings of the machine that affect its speed: governor, turbo, threads of one core, clock, huge pages.

use std::fs;
use std::path::{Path, PathBuf};

use super::warning::Warning;

/// The files of Linux that describe the machine, below a root that tests replace.
pub(super) struct Machine {
    root: PathBuf,
}

impl Machine {
    /// Returns this machine.
    pub(super) fn new() -> Self {
        Machine::at(Path::new("/"))
    }

    /// Returns the machine whose `/proc` and `/sys` are below `root`.
    pub(super) fn at(root: &Path) -> Self {
        Machine { root: root.to_owned() }
    }

    /// Returns the trimmed text of a file, or `None` if it is missing. Virtual machines and containers hide many files.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join(path)).ok()?;
        Some(text.trim().to_owned())
    }

    fn processor(&self, processor: usize, file: &str) -> Option<String> {
        self.read(&format!("sys/devices/system/cpu/cpu{processor}/{file}"))
    }

    /// Returns the model of the processors.
    pub(super) fn cpu(&self) -> Option<String> {
        let text = self.read("proc/cpuinfo")?;
        let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "))?;
        Some(name.1.to_owned())
    }

    /// Returns the modes of transparent huge pages for private and for shared memory, which the kernel marks with
    /// brackets.
    pub(super) fn huge_pages(&self) -> Option<String> {
        let mode = |file: &str| {
            let text = self.read(&format!("sys/kernel/mm/transparent_hugepage/{file}"))?;
            let (_, rest) = text.split_once('[')?;
            Some(rest.split_once(']')?.0.to_owned())
        };
        let shared = mode("shmem_enabled").map_or(String::new(), |mode| format!(", shared memory {mode}"));
        Some(format!("{}{shared}", mode("enabled")?))
    }

    /// Returns the settings that make the figures of these processors misleading.
    pub(super) fn warnings(&self, used: &[usize]) -> Vec<Warning> {
        let all = [self.governor(used), self.turbo(), self.siblings(used), self.clock(), self.compaction()];
        all.into_iter().flatten().collect()
    }

    fn governor(&self, used: &[usize]) -> Option<Warning> {
        let slow = used.iter().find_map(|&processor| {
            let governor = self.processor(processor, "cpufreq/scaling_governor")?;
            (governor != "performance").then_some((processor, governor))
        })?;
        let (processor, governor) = slow;
        let what = format!(
            "the governor of processor {processor} is `{governor}`: the frequency follows the load, and short runs see a low one"
        );
        Some(Warning::new(what, "set it with `cpupower frequency-set -g performance`"))
    }

    fn turbo(&self) -> Option<Warning> {
        let (file, off) =
            [("intel_pstate/no_turbo", "1"), ("cpufreq/boost", "0")].into_iter().find_map(|(file, off)| {
                let value = self.read(&format!("sys/devices/system/cpu/{file}"))?;
                (value != off).then_some((file, off))
            })?;
        let what = "turbo is on: the frequency depends on the temperature and on what other cores do";
        Some(Warning::new(what, format!("turn it off with `echo {off} > /sys/devices/system/cpu/{file}`")))
    }

    /// Returns a warning if two of the processors are threads of one core.
    fn siblings(&self, used: &[usize]) -> Option<Warning> {
        let core = |processor: usize| self.processor(processor, "topology/thread_siblings_list");
        let (one, other) = used.iter().enumerate().find_map(|(n, &one)| {
            let siblings = core(one)?;
            let other = used[n + 1..].iter().find(|&&other| core(other).as_ref() == Some(&siblings))?;
            Some((one, *other))
        })?;
        let what = format!(
            "processors {one} and {other} are threads of one core: each slows the other, and lines go between them faster than \
             between cores"
        );
        Some(Warning::new(what, "allow this process one thread of each core with `taskset`"))
    }

    fn clock(&self) -> Option<Warning> {
        let clock = self.read("sys/devices/system/clocksource/clocksource0/current_clocksource")?;
        let slow = ["hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"].contains(&clock.as_str());
        let what = format!("the clock is `{clock}`: reading it takes a system call and up to a microsecond");
        slow.then(|| Warning::new(what, "boot with `clocksource=tsc` if the processor's counter is stable"))
    }

    fn compaction(&self) -> Option<Warning> {
        let mode = self.huge_pages()?;
        let what = "transparent huge pages are always on: the kernel compacts memory during the measurement";
        mode.starts_with("always")
            .then(|| Warning::new(what, "set them to `madvise` in /sys/kernel/mm/transparent_hugepage/enabled"))
    }
}

#[cfg(test)]
mod tests {
    use stentor_testutil::TempDir;

    use super::*;

    /// Returns a machine with these files.
    fn machine(files: &[(&str, &str)]) -> (TempDir, Machine) {
        let root = TempDir::with_lines(files);
        let machine = Machine::at(root.as_ref());
        (root, machine)
    }

    fn whats(files: &[(&str, &str)], used: &[usize]) -> Vec<String> {
        let (_root, machine) = machine(files);
        machine.warnings(used).into_iter().map(|warning| warning.what).collect()
    }

    #[test]
    fn silent_or_quiet_machine_has_no_warning() {
        assert!(whats(&[], &[0, 1]).is_empty());
        let quiet = [
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance"),
            ("sys/devices/system/cpu/intel_pstate/no_turbo", "1"),
            ("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,2"),
            ("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "1,3"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never"),
        ];
        assert!(whats(&quiet, &[0, 1]).is_empty());
    }

    #[test]
    fn each_misleading_setting_is_reported() {
        let cases: [(&str, &str, &str); 6] = [
            (
                "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
                "powersave",
                "governor of processor 1 is `powersave`",
            ),
            ("sys/devices/system/cpu/intel_pstate/no_turbo", "0", "turbo is on"),
            ("sys/devices/system/cpu/cpufreq/boost", "1", "turbo is on"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet", "the clock is `hpet`"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never", "huge pages are always on"),
            // A processor that the bench does not use.
            ("sys/devices/system/cpu/cpu7/cpufreq/scaling_governor", "powersave", ""),
        ];
        for (path, text, wanted) in cases {
            let found = whats(&[(path, text)], &[0, 1]).join("; ");
            assert!(found.contains(wanted) && found.is_empty() == wanted.is_empty(), "{path}: {found}");
        }
    }

    #[test]
    fn threads_of_one_core_are_named_only_if_both_are_used() {
        let files = [
            ("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,2"),
            ("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "1,3"),
            ("sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "0,2"),
        ];
        assert!(whats(&files, &[0, 1]).is_empty());
        let found = whats(&files, &[0, 1, 2]).join("; ");
        assert!(found.starts_with("processors 0 and 2 are threads of one core"), "{found}");
    }

    #[test]
    fn modes_of_huge_pages_are_the_words_in_brackets() {
        let enabled = ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
        let shared =
            ("sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size advise [never] deny force");
        assert_eq!(machine(&[enabled]).1.huge_pages().as_deref(), Some("madvise"));
        assert_eq!(machine(&[enabled, shared]).1.huge_pages().as_deref(), Some("madvise, shared memory never"));
        assert_eq!(machine(&[]).1.huge_pages(), None);
    }
}
