//! The conductor's view of the processes: it starts them, sends them commands, and ends them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use stentor_support::args::Network;
use stentor_support::live::random_key;
use stentor_support::{Failure, unique};

use super::shared_area::{Command, Shape, SharedArea};
use super::worker_spec::{Part, WorkerSpec, broken};

/// Environment variable with the key of this bench's cluster, which some fabrics need.
pub(super) const KEY: &str = "STENTOR_BENCH_KEY";
/// Number of clusters that this conductor has started. Several run at the same time, and each needs its own directory.
static STARTED: AtomicU32 = AtomicU32::new(0);
/// Time after which a phase counts as hanging.
const PATIENCE: Duration = Duration::from_secs(120);
/// Interval at which the conductor checks its processes.
const LOOK: Duration = Duration::from_millis(200);
/// Longest time that the processes may take to end.
const FAREWELL: Duration = Duration::from_secs(5);

/// The processes of a bench. Dropping this value ends them.
pub(super) struct Workers {
    pub(super) area: SharedArea,
    children: Vec<Child>,
    directory: PathBuf,
}

impl Workers {
    /// Starts one process for each entry of `processors`. The entry is the processor to which the process is pinned.
    /// `traffic` returns the captures and faults of the process's network.
    pub(super) fn start(
        part: Part,
        shape: Shape,
        processors: &[Option<usize>],
        traffic: impl Fn(usize) -> Network,
    ) -> Result<Self, Failure> {
        Workers::start_in(part, shape, processors, traffic, |_| None)
    }

    /// Starts the processes in network namespaces. `namespace` returns the name of a process's namespace, or `None` for
    /// that of this process. All processes still share this host's memory.
    pub(super) fn start_in<'a>(
        part: Part,
        shape: Shape,
        processors: &[Option<usize>],
        traffic: impl Fn(usize) -> Network,
        namespace: impl Fn(usize) -> Option<&'a str>,
    ) -> Result<Self, Failure> {
        let area = SharedArea::create(shape).map_err(broken("share memory"))?;
        let directory = format!("{}-{}", unique::name("bench"), STARTED.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(directory);
        let program = std::env::current_exe().map_err(broken("find this program"))?;
        let key = random_key().map_err(broken("make a key"))?;
        let mut workers = Workers { area, children: Vec::new(), directory };
        let parts = std::iter::repeat_n(part, processors.len());
        for (process, (processor, part)) in processors.iter().zip(parts).enumerate() {
            let (directory, parent) = (workers.directory.clone(), std::process::id() as i32);
            let traffic = traffic(process);
            let spec = WorkerSpec { process, directory, parent, shape, part, processor: *processor, traffic };
            let text = serde_json::to_string(&spec).expect("a specification has string keys");
            let memory = workers.area.memory().descriptor().map_err(broken("share memory"))?;
            let child = command_in(namespace(process), &program)
                .args(["bench", "process", &text])
                // The key is not an argument, because arguments are visible to other users.
                .env(KEY, &key)
                .stdin(Stdio::from(memory))
                .stdout(Stdio::null())
                .spawn()
                .map_err(broken("start a process"))?;
            workers.children.push(child);
        }
        Ok(workers)
    }

    /// Runs one phase, from beginning to end.
    pub(super) fn run(&mut self, command: Command) -> Result<(), Failure> {
        let phase = self.area.begin(command);
        let since = Instant::now();
        while !self.area.await_finish(phase, LOOK).map_err(broken("wait"))? {
            self.look()?;
            if since.elapsed() > PATIENCE {
                let what = format!("phase {phase} ({command:?}) takes longer than {} s", PATIENCE.as_secs());
                return Err(Failure::run(what, "bench", "ask for fewer iterations, or report this as a bug"));
            }
        }
        Ok(())
    }

    fn look(&mut self) -> Result<(), Failure> {
        for (process, child) in self.children.iter_mut().enumerate() {
            if let Some(status) = child.try_wait().map_err(broken("check a process"))? {
                let what = format!("process {process} of the bench ended early ({status})");
                return Err(Failure::run(what, "bench", "its output is above; run `stentor doctor`"));
            }
        }
        Ok(())
    }
}

/// Returns the command that starts a program, in a network namespace if one is given. The program replaces `ip`, so
/// this process stays its parent.
fn command_in(namespace: Option<&str>, program: &Path) -> Program {
    let Some(namespace) = namespace else { return Program::new(program) };
    let mut command = Program::new("ip");
    command.args(["netns", "exec", namespace]).arg(program);
    command
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.area.begin(Command::default());
        let until = Instant::now() + FAREWELL;
        for child in &mut self.children {
            // Processes that do not end in time are killed. All of them are our own children.
            while Instant::now() < until && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        // The last process of the cluster has removed the directory, unless that process was killed.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
