//! libfabric's own program `fi_pingpong`, run in turns with the bench as an independent reference.

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use stentor_support::streams::complain;

const PROGRAM: &str = "fi_pingpong";
/// Name of the rows of `fi_pingpong`.
pub(super) const ROW: &str = "fi_pingpong of libfabric (the mean of a round)";
/// Time after which a run counts as hanging. On the provider `sockets` of libfabric 1.17, two runs had not ended after
/// 8 and 10 s.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest time until the server listens, even on a busy host.
const OPENING: Duration = Duration::from_secs(5);
/// Number of attempts at a run. On a busy host, a run sometimes fails or finds its port in use.
const TRIES: usize = 3;
/// Interval at which a process that should end is checked.
const LOOK: Duration = Duration::from_millis(5);

/// Results of `fi_pingpong` by payload, until a run fails.
pub(super) struct PingPong {
    provider: String,
    /// The processor of each side.
    processors: [usize; 2],
    /// Payload in bytes, and the mean half round trip of each round in microseconds.
    pub(super) found: Vec<(usize, Vec<f64>)>,
    /// The error after which no further run is tried.
    broken: Option<String>,
}

impl PingPong {
    pub(super) fn new(provider: &str, processors: [usize; 2], sizes: &[usize]) -> Self {
        let found = sizes.iter().map(|bytes| (*bytes, Vec::new())).collect();
        PingPong { provider: provider.to_owned(), processors, found, broken: None }
    }

    /// Runs the program once for each payload. Repeats a run that fails, up to [`TRIES`] attempts in all. If the last
    /// attempt fails, reports its error and makes no further runs.
    pub(super) fn round(&mut self, iterations: impl Fn(usize) -> u64) {
        for at in 0..self.found.len() {
            if self.broken.is_some() {
                return;
            }
            let bytes = self.found[at].0;
            let again = |tried: Result<f64, String>, _| tried.or_else(|_| self.one(bytes, iterations(bytes)));
            match (1..TRIES).fold(self.one(bytes, iterations(bytes)), again) {
                Ok(us) => self.found[at].1.push(us),
                Err(why) => {
                    complain(format!("stentor bench channel: no figures of {PROGRAM} on {}: {why}\n", self.provider));
                    self.broken = Some(why);
                }
            }
        }
    }

    fn one(&self, bytes: usize, iterations: u64) -> Result<f64, String> {
        let port = free_port().map_err(|error| format!("no free port: {error}"))?;
        let mut server = Running(self.start(0, bytes, iterations, &["-B", &port.to_string()])?);
        // The server does not report when it listens, and a client that connects too early fails.
        let since = Instant::now();
        loop {
            let mut client = Running(self.start(1, bytes, iterations, &["-P", &port.to_string(), "127.0.0.1"])?);
            let good = client.end()?;
            let mut told = String::new();
            if let Some(output) = &mut client.0.stdout {
                output.read_to_string(&mut told).map_err(|error| error.to_string())?;
            }
            if good {
                server.end()?;
                return parse(&told, bytes).ok_or_else(|| format!("it says {told:?}"));
            }
            if since.elapsed() > OPENING || server.has_ended() {
                return Err("it ends with an error; run it by hand".to_owned());
            }
            std::thread::sleep(LOOK);
        }
    }

    fn start(&self, side: usize, bytes: usize, iterations: u64, more: &[&str]) -> Result<Child, String> {
        let processor = self.processors[side].to_string();
        let (bytes, iterations) = (bytes.to_string(), iterations.to_string());
        let mut program = Command::new("taskset");
        program.args(["-c", &processor, PROGRAM, "-p", &self.provider, "-e", "rdm", "-m", "tagged"]);
        program.args(["-I", &iterations, "-S", &bytes]).args(more);
        program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        program.spawn().map_err(|error| format!("cannot start taskset: {error}; install util-linux"))
    }
}

/// A process that is killed when this value is dropped.
struct Running(Child);

impl Running {
    /// Waits until the process ends. Returns whether it succeeded.
    fn end(&mut self) -> Result<bool, String> {
        let since = Instant::now();
        while since.elapsed() < PATIENCE {
            match self.0.try_wait().map_err(|error| error.to_string())? {
                Some(status) if status.code() == Some(127) => {
                    return Err("it is not installed; install Debian's libfabric-bin".to_owned());
                }
                Some(status) => return Ok(status.success()),
                None => std::thread::sleep(LOOK),
            }
        }
        Err(format!("it has not ended after {} s", PATIENCE.as_secs()))
    }
}

impl Running {
    fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Returns the value in the column `usec/xfer` of the only row.
fn parse(told: &str, bytes: usize) -> Option<f64> {
    let mut lines = told.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let at = lines.find(|words| words.first() == Some(&"bytes"))?.iter().position(|word| *word == "usec/xfer")?;
    let line = lines.find(|words| words.first().is_some_and(|size| is_size(size, bytes)))?;
    line.get(at)?.parse().ok().filter(|us| *us > 0.0)
}

/// Returns whether a size that the program printed is `bytes`. The program prints 4096 as `4k`.
fn is_size(told: &str, bytes: usize) -> bool {
    told == bytes.to_string() || told == format!("{}k", bytes >> 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &str = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n\
                        4k      =2k      2k     31k         1.07s      0.03     267.80       0.00\n";

    #[test]
    fn column_is_found_by_name_and_row_by_size() {
        assert_eq!(parse(TOLD, 4096), Some(267.8));
        assert_eq!(parse(&TOLD.replace("4k  ", "8  "), 8), Some(267.8));
        assert_eq!(parse(TOLD, 8), None, "another size");
        assert_eq!(parse(&TOLD.replace("usec", "ns"), 4096), None, "another column");
        assert_eq!(parse("", 8), None);
    }
}
