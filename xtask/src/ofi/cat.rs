//! Checks that `stentor channel cat` on libfabric transfers each byte unchanged.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde_json::Value;
use stentor_testutil::TempDir;

use crate::cargo::{Context, run};
use crate::programs;
use crate::step::Outcome;

/// The address at which the two sides of a transfer connect.
const PLACE: &str = "127.0.0.1:7397";
/// The provider of the transfers.
const PROVIDER: &str = "tcp;ofi_rxm";
/// Size of the file in bytes.
const FILE: u64 = 1 << 30;
/// Number of bytes that are transferred between pipes.
const LONG: u64 = 10 << 30;
/// Maximum memory of a side in KiB. This is twice the usual memory, which does not depend on the length of the
/// transfer.
const MEMORY_KIB: u64 = 256 << 10;
/// Interval at which a side's memory is checked.
const LOOK: Duration = Duration::from_millis(100);
/// Number of bytes of each read and write of a pipe.
const CHUNK: usize = 1 << 20;

/// The generator xorshift by George Marsaglia. No two kilobytes of its bytes are equal.
struct Bytes(u64);

impl Bytes {
    fn new() -> Self {
        Bytes(0x9e37_79b9_7f4a_7c15)
    }

    fn fill(&mut self, to: &mut [u8]) {
        for word in to.chunks_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            word.copy_from_slice(&self.0.to_le_bytes()[..word.len()]);
        }
    }

    fn write(mut self, to: &mut impl Write, bytes: u64) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK];
        for _ in 0..bytes / CHUNK as u64 {
            self.fill(&mut chunk);
            to.write_all(&chunk)?;
        }
        to.flush()
    }
}

fn side(program: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(["channel", "cat", PLACE, "--fabric", "ofi", "--provider", PROVIDER]).args(more);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// Transfers a file from one process to another.
pub(super) fn file(context: &Context) -> Result<()> {
    let program = programs::stentor(context)?;
    let work = TempDir::new();
    let (file, copy) = (work.join("file"), work.join("copy"));
    Bytes::new().write(&mut BufWriter::new(File::create(&file)?), FILE)?;
    let listener = side(&program, &["--json", "--listen", "--output"]).arg(&copy).spawn()?;
    let sender = side(&program, &["--json", "--input"]).arg(&file).spawn()?;
    let [sent, received] = [sender, listener].map(report);
    let (sent, received) = (sent?, received?);
    ensure!(sent["bytes"] == FILE && received["bytes"] == FILE, "{sent} {received}");
    ensure!(sent["sha256"] == received["sha256"] && sent["sha256"].is_string(), "{sent} {received}");
    run(Command::new("cmp").args([&file, &copy]))?;
    println!("{FILE} bytes over {}: {:.1} s, {:.0} MB/s", sent["carrier"], sent["seconds"], sent["mb_per_s"]);
    Ok(())
}

/// Waits for a side, and returns the document that it prints at its end.
fn report(side: Child) -> Result<Value> {
    let output = side.wait_with_output()?;
    ensure!(output.status.success(), "`stentor channel cat` ended with {}; its message is above", output.status);
    serde_json::from_slice(&output.stdout).context("cannot parse the document of `stentor channel cat`")
}

/// Transfers 10 GiB from a pipe into a pipe. Every byte is compared, the hash is that of `sha256sum`, and the memory of
/// neither side grows.
pub(crate) fn long(context: &Context) -> Result<Outcome> {
    super::NEEDS.ensure()?;
    let program = programs::stentor(context)?;
    through(&program, LONG)?;
    Ok(Outcome::Passed)
}

fn through(program: &Path, bytes: u64) -> Result<()> {
    let start = Instant::now();
    let mut listener = Ended(side(program, &["--listen", "-w", "60"]).stderr(Stdio::piped()).spawn()?);
    let mut sender = Ended(side(program, &["--json", "-w", "60"]).stdin(Stdio::piped()).spawn()?);
    let mut hash = Ended(Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
    let (mut into, from) = (taken(&mut sender.0.stdin)?, taken(&mut listener.0.stdout)?);
    let hashed = taken(&mut hash.0.stdin)?;
    let mut most = [0; 2];
    let came = thread::scope(|scope| -> Result<u64> {
        scope.spawn(move || Bytes::new().write(&mut into, bytes));
        let reader = scope.spawn(move || compare(from, hashed));
        // The pipe of a side closes when the side ends, which also ends the threads here.
        while listener.0.try_wait()?.is_none() {
            for (most, side) in most.iter_mut().zip([&sender, &listener]) {
                *most = high_water(side.0.id()).unwrap_or(0).max(*most);
            }
            thread::sleep(LOOK);
        }
        reader.join().map_err(|_| anyhow!("the comparing thread has panicked"))?
    });
    let [mut told, mut wanted] = [String::new(), String::new()];
    taken(&mut listener.0.stderr)?.read_to_string(&mut told)?;
    taken(&mut hash.0.stdout)?.read_to_string(&mut wanted)?;
    let mut document = String::new();
    taken(&mut sender.0.stdout)?.read_to_string(&mut document)?;
    let [ended, sent] = [listener.0.wait()?, sender.0.wait()?];
    ensure!(ended.success() && sent.success(), "the listener ended with {ended}, the sender with {sent}: {told}");
    ensure!(came? == bytes, "the number of received bytes differs from the number of sent bytes: {told}");
    let wanted = wanted.split_whitespace().next().context("sha256sum printed nothing")?;
    let report: Value =
        serde_json::from_str(&document).context("cannot parse the document of `stentor channel cat`")?;
    ensure!(
        report["sha256"] == wanted && report["bytes"] == bytes,
        "sha256sum printed {wanted}, and the sender {report}"
    );
    ensure!(told.contains(&format!("SHA-256 {wanted}")), "sha256sum printed {wanted}, and the listener: {told}");
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{bytes} bytes over {}, pipe to pipe: {seconds:.1} s; SHA-256 {wanted}; most memory (VmHWM): sender {} KiB, \
         listener {} KiB, at most {MEMORY_KIB} wanted",
        report["carrier"], most[0], most[1]
    );
    ensure!(most.iter().all(|most| (1..=MEMORY_KIB).contains(most)), "a side's memory grows: {most:?} KiB");
    Ok(())
}

/// A process that is killed when this value is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn taken<T>(pipe: &mut Option<T>) -> Result<T> {
    pipe.take().context("a pipe is missing")
}

/// Reads all bytes, compares them with the sent bytes, and writes them to `to`. Returns the number of bytes.
fn compare(mut from: impl Read, mut to: impl Write) -> Result<u64> {
    let (mut wanted, mut expected, mut found) = (Bytes::new(), vec![0; CHUNK], vec![0; CHUNK]);
    let mut bytes = 0;
    loop {
        let mut filled = 0;
        while filled < CHUNK {
            match from.read(&mut found[filled..])? {
                0 => break,
                some => filled += some,
            }
        }
        wanted.fill(&mut expected);
        if found[..filled] != expected[..filled] {
            let at = found.iter().zip(&expected).take_while(|(found, expected)| found == expected).count();
            bail!("byte {} differs from the sent byte", bytes + at as u64);
        }
        to.write_all(&found[..filled])?;
        bytes += filled as u64;
        if filled < CHUNK {
            return Ok(bytes);
        }
    }
}

/// Returns the maximum memory that a process has had, in KiB.
fn high_water(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_bytes_are_compared_one_by_one() {
        let bytes = 3 * CHUNK;
        let mut sent = Vec::new();
        Bytes::new().write(&mut sent, bytes as u64).unwrap();
        let mut hashed = Vec::new();
        assert_eq!(compare(&*sent, &mut hashed).unwrap(), bytes as u64);
        assert!(hashed == sent);
        assert_eq!(compare(&sent[..bytes - 1], io::sink()).unwrap(), bytes as u64 - 1, "a byte is missing");
        sent[2 * CHUNK + 7] ^= 1;
        let error = compare(&*sent, io::sink()).unwrap_err().to_string();
        assert!(error.contains(&format!("byte {} ", 2 * CHUNK + 7)), "{error}");
    }

    #[test]
    fn memory_is_read() {
        assert!(high_water(std::process::id()).unwrap() > 100);
    }
}
