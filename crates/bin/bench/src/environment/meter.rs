//! Processor time that a bench did not get while it ran: time of other guests of the virtual machine's host, time of
//! other processes, and pauses by quotas.

use super::machine::Machine;
use super::warning::Warning;

/// Share of the processors' time that the host of the virtual machine may take without a warning.
const STOLEN: f64 = 0.01;
/// Share of one processor's time that other processes may take without a warning. Interrupts are not counted, because
/// most of them are for packets of the bench itself.
const OTHERS: f64 = 0.10;

/// Processor time, in ticks of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Spent {
    /// Time of all processors that the bench may use, idle or not.
    all: u64,
    /// Time of processes, in user mode and in the kernel.
    busy: u64,
    /// Time that the host took for other guests.
    stolen: u64,
    /// Time of this process and of its children that have ended.
    own: u64,
    /// Number of times that a quota stopped the processes of this container.
    throttled: u64,
}

/// The readings at the start of a bench.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    used: Vec<usize>,
    before: Option<Spent>,
}

impl Meter {
    /// Reads the time that these processors have spent until now.
    pub(super) fn start(machine: &Machine, used: &[usize]) -> Self {
        Meter { used: used.to_vec(), before: Spent::read(machine, used) }
    }

    /// Returns the warnings about processor time since the start. The processes of the bench must have ended.
    pub(super) fn warnings(&self, machine: &Machine) -> Vec<Warning> {
        let (Some(before), Some(after)) = (self.before, Spent::read(machine, &self.used)) else { return Vec::new() };
        after.since(before).warnings(self.used.len())
    }
}

impl Spent {
    fn read(machine: &Machine, used: &[usize]) -> Option<Self> {
        let mut spent = Spent::default();
        let stat = machine.read("proc/stat")?;
        for processor in used {
            let name = format!("cpu{processor} ");
            let line = stat.lines().find_map(|line| line.strip_prefix(&name))?;
            let fields: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
            // The time of guests, in later fields, is included in the first two.
            let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = fields[..] else { return None };
            let busy = user + nice + system;
            spent.busy += busy;
            spent.stolen += steal;
            spent.all += busy + irq + softirq + idle + iowait + steal;
        }
        spent.own = own_time(&machine.read("proc/self/stat")?)?;
        let throttled = machine.read("sys/fs/cgroup/cpu.stat");
        let throttled = throttled
            .and_then(|text| text.lines().find_map(|line| line.strip_prefix("nr_throttled ")?.trim().parse().ok()));
        spent.throttled = throttled.unwrap_or(0);
        Some(spent)
    }

    fn since(self, before: Self) -> Self {
        Spent {
            all: self.all.saturating_sub(before.all),
            busy: self.busy.saturating_sub(before.busy),
            stolen: self.stolen.saturating_sub(before.stolen),
            own: self.own.saturating_sub(before.own),
            throttled: self.throttled.saturating_sub(before.throttled),
        }
    }

    fn warnings(self, processors: usize) -> Vec<Warning> {
        let mut warnings = Vec::new();
        if self.all == 0 {
            return warnings;
        }
        let stolen = self.stolen as f64 / self.all as f64;
        if stolen > STOLEN {
            let what = format!(
                "the host of this virtual machine gave {:.0} % of the processors' time to others while the bench ran",
                stolen * 100.0
            );
            warnings.push(Warning::new(what, "repeat it when the host is quiet"));
        }
        let others = self.busy.saturating_sub(self.own) as f64 / (self.all as f64 / processors as f64);
        if others > OTHERS {
            let what =
                format!("other processes took {:.0} % of a processor's time while the bench ran", others * 100.0);
            warnings.push(Warning::new(what, "repeat it with nothing else running"));
        }
        if self.throttled > 0 {
            let what = format!("a quota stopped the processes of this container {} times", self.throttled);
            warnings.push(Warning::new(what, "raise `cpu.max` of the control group, or pin to processors instead"));
        }
        warnings
    }
}

/// Returns user and system time of a process and of its children that have ended, from its `stat` line in `/proc`.
fn own_time(stat: &str) -> Option<u64> {
    // The process name, in parentheses, may contain spaces and parentheses.
    let (_, rest) = stat.rsplit_once(')')?;
    let times = rest.split_whitespace().skip(11).take(4).map(|field| field.parse::<u64>().ok());
    times.sum()
}

#[cfg(test)]
mod tests {
    use stentor_testutil::TempDir;

    use super::*;

    /// Sets the times of processors 0 and 1 (busy, idle and stolen) and of this process.
    fn spend(root: &TempDir, processors: [[u64; 3]; 2], own: u64, throttled: u64) {
        let mut stat = "cpu  9 9 9 9 9 9 9 9 9 9\n".to_owned();
        for (n, [busy, idle, stolen]) in processors.into_iter().enumerate() {
            stat += &format!("cpu{n} {busy} 0 0 {idle} 0 0 0 {stolen} 0 0\n");
        }
        root.file("proc/stat", &stat);
        root.file("proc/self/stat", format!("7 (a) b) S 1 2 3 4 5 6 7 8 9 10 {own} 0 0 0 20 0\n"));
        root.file("sys/fs/cgroup/cpu.stat", format!("nr_periods 1\nnr_throttled {throttled}\n"));
    }

    fn whats(used: &[usize], after: ([[u64; 3]; 2], u64, u64)) -> String {
        let root = TempDir::new();
        let machine = Machine::at(root.as_ref());
        spend(&root, [[500, 500, 50]; 2], 100, 3);
        let meter = Meter::start(&machine, used);
        let (processors, own, throttled) = after;
        spend(&root, processors, own, throttled);
        let all: Vec<_> = meter.warnings(&machine).into_iter().map(|warning| warning.what).collect();
        all.join("; ")
    }

    #[test]
    fn a_bench_alone_has_no_warning() {
        assert_eq!(whats(&[0, 1], ([[1500, 500, 50], [1500, 500, 50]], 2100, 3)), "");
        assert_eq!(whats(&[0, 1], ([[500, 1500, 50], [500, 1500, 50]], 100, 3)), "");
    }

    #[test]
    fn time_of_other_processes_is_reported() {
        let told = whats(&[0, 1], ([[1500, 500, 50], [1500, 500, 50]], 1700, 3));
        assert_eq!(told, "other processes took 40 % of a processor's time while the bench ran");
        // Processes on processors that the bench does not use do not matter.
        assert_eq!(whats(&[0], ([[1500, 500, 50], [1500, 500, 50]], 1100, 3)), "");
    }

    #[test]
    fn stolen_time_and_quotas_are_reported() {
        let told = whats(&[0, 1], ([[1400, 500, 150], [1500, 500, 50]], 2100, 8));
        assert!(told.contains("gave 5 % of the processors' time"), "{told}");
        assert!(told.contains("stopped the processes of this container 5 times"), "{told}");
    }

    #[test]
    fn names_of_processes_may_have_parentheses() {
        assert_eq!(own_time("1 (x (y) z) R 1 1 1 0 -1 0 0 0 0 0 10 20 30 40 20 0"), Some(100));
        assert_eq!(own_time("1 (x) R 1"), Some(0));
        assert_eq!(own_time("nothing"), None);
    }
}
