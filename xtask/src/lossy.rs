//! `cargo xtask nightly --only roce-lossy`: measures bulk transfers of `roce` over lossy links, slow links, and links
//! that a TCP connection shares.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use stentor_testutil::median;

use crate::cargo::{Context, capture};
use crate::needs::Needs;
use crate::programs;
use crate::step::Outcome;

const SCRIPT: &str = "crates/bin/cli/tests/namespaces/lossy.sh";
pub(crate) const NEEDS: Needs = Needs { things: &["ip", "tc", "nft", "iperf3"], sources: &[SCRIPT] };

/// Number of measurements of each link.
const ROUNDS: usize = 3;
/// Duration of each measurement, in seconds.
const SECONDS: &str = "5";
/// Maximum memory of either end, in KiB. This is four times the usual memory, which does not depend on the bytes in
/// flight.
const MEMORY_KIB: f64 = 65_536.0;
/// Maximum ratio of the rates of two flows that share a link.
const APART: f64 = 3.0;

/// A link, and the minimum rate over it.
struct Link {
    /// Number of packets in 1000 that the link loses.
    loss: u32,
    /// Rate in Mbit/s; 0 means as fast as the processor permits.
    rate: u32,
    queue_ms: u32,
    bar: Bar,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Bar {
    /// The rate must be at least this share of the rate of plain datagrams, which are sent at the link's rate.
    OfRaw(f64),
    /// A TCP connection shares the link. The ratio of both rates must be at most [`APART`].
    BesideTcp,
}

const fn link(loss: u32, rate: u32, queue_ms: u32, bar: Bar) -> Link {
    Link { loss, rate, queue_ms, bar }
}

const LINKS: [Link; 9] = [
    link(1, 0, 0, Bar::OfRaw(0.5)),
    link(1, 200, 20, Bar::OfRaw(0.5)),
    link(10, 0, 0, Bar::OfRaw(0.2)),
    link(10, 200, 20, Bar::OfRaw(0.2)),
    link(0, 10, 20, Bar::OfRaw(0.8)),
    link(0, 100, 20, Bar::OfRaw(0.8)),
    link(0, 100, 5, Bar::OfRaw(0.8)),
    link(0, 100, 20, Bar::BesideTcp),
    link(0, 100, 5, Bar::BesideTcp),
];

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rate {
            0 => write!(f, "as fast as the processor")?,
            rate => write!(f, "{rate} Mbit/s behind {} ms", self.queue_ms)?,
        }
        write!(f, ", {:.1} % lost", f64::from(self.loss) / 10.0)
    }
}

/// The values of all rounds, by name.
type Values = BTreeMap<String, Vec<f64>>;

/// Measures rates, so no other program should run on a machine with two processors.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    NEEDS.ensure()?;
    let (stentor, script) = (programs::stentor(context)?, context.root.join(SCRIPT));
    println!("payload in Mbit/s and memory in MiB, medians of {ROUNDS} runs of {SECONDS} s");
    let mut missed = 0;
    for link in LINKS {
        let mut values = Values::new();
        for _ in 0..ROUNDS {
            let both = ["raw", "ours"];
            let whats = if link.bar == Bar::BesideTcp { &["shared"][..] } else { &both };
            for what in whats {
                measure(&script, &stentor, what, &link, &mut values)?;
            }
        }
        let (good, row) = judge(&link, &values)?;
        println!("  {}  {link}: {row}", if good { "ok    " } else { "missed" });
        missed += usize::from(!good);
    }
    ensure!(missed == 0, "{missed} bars are missed: see above");
    Ok(Outcome::Passed)
}

fn measure(script: &Path, stentor: &Path, what: &str, link: &Link, values: &mut Values) -> Result<()> {
    let Link { loss, rate, queue_ms, .. } = link;
    let numbers = [loss, rate, queue_ms].map(u32::to_string);
    let mut run = Command::new("unshare");
    run.arg("-rnm").arg(script).arg(stentor).arg(what).args(numbers).arg(SECONDS);
    let (good, text) = capture(&mut run)?;
    ensure!(good, "`lossy.sh {what}` failed on a link of {link}:\n{text}");
    read(&text, values)
}

/// Parses lines `NAME VALUE`.
fn read(text: &str, values: &mut Values) -> Result<()> {
    for line in text.lines() {
        let (name, value) = line.split_once(' ').with_context(|| format!("not a name and a value: {line}"))?;
        let value = value.parse().with_context(|| format!("not a number: {line}"))?;
        values.entry(name.to_owned()).or_default().push(value);
    }
    Ok(())
}

/// Returns whether the figures meet the bar, and a text with the figures.
fn judge(link: &Link, values: &Values) -> Result<(bool, String)> {
    let all = |name: &str| values.get(name).with_context(|| format!("no `{name}` for a link of {link}"));
    let middle = |name: &str| Ok::<_, anyhow::Error>(median(all(name)?.iter().copied()));
    let most = all("sender_kib")?.iter().chain(all("listener_kib")?).fold(0.0_f64, |most, kib| most.max(*kib));
    let ours = middle("ours_mbit")?;
    let (fits, rates) = match link.bar {
        Bar::OfRaw(bar) => {
            let raw = middle("raw_mbit")?;
            let row =
                format!("{ours:.0}, plain datagrams {raw:.0}: {:.0} % (bar {:.0} %)", 100.0 * ours / raw, 100.0 * bar);
            (ours >= bar * raw, row)
        }
        Bar::BesideTcp => {
            let tcp = middle("tcp_mbit")?;
            let apart = (ours / tcp).max(tcp / ours);
            (apart <= APART, format!("{ours:.0}, TCP beside it {tcp:.0}: {apart:.1} times apart (bar {APART})"))
        }
    };
    let loses = link.loss == 0 || all("lost")?.iter().all(|lost| *lost > 0.0);
    ensure!(loses, "a link of {link} lost nothing");
    let memory = format!("at most {:.0} MiB (bar {:.0})", most / 1024.0, MEMORY_KIB / 1024.0);
    Ok((fits && most > 0.0 && most <= MEMORY_KIB, format!("{rates}; {memory}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Values {
        let mut values = Values::new();
        read(text, &mut values).unwrap();
        values
    }

    const MEMORY: &str = "sender_kib 16000\nlistener_kib 12000\n";

    #[test]
    fn each_bar_can_be_missed() {
        let lossy = link(10, 0, 0, Bar::OfRaw(0.2));
        let judged = |link: &Link, text: &str| judge(link, &values(&format!("{MEMORY}{text}"))).unwrap().0;
        assert!(judged(&lossy, "ours_mbit 20\nraw_mbit 100\nlost 5"));
        assert!(!judged(&lossy, "ours_mbit 19\nraw_mbit 100\nlost 5"));
        assert!(!judged(&lossy, "ours_mbit 20\nraw_mbit 100\nlost 5\nlistener_kib 65537"), "memory");
        let shared = link(0, 100, 20, Bar::BesideTcp);
        assert!(judged(&shared, "ours_mbit 30\ntcp_mbit 90"));
        assert!(!judged(&shared, "ours_mbit 29\ntcp_mbit 90"), "TCP has too much");
        assert!(!judged(&shared, "ours_mbit 91\ntcp_mbit 30"), "TCP has too little");
    }

    #[test]
    fn missing_values_and_lossy_links_without_losses_are_errors() {
        let lossy = link(10, 0, 0, Bar::OfRaw(0.2));
        let judged = |text: &str| judge(&lossy, &values(text));
        assert!(judged(&format!("{MEMORY}ours_mbit 20\nraw_mbit 100\nlost 0")).is_err());
        assert!(judged(&format!("{MEMORY}ours_mbit 20\nlost 1")).is_err());
        assert!(judged("ours_mbit 20\nraw_mbit 100\nlost 1").is_err());
        assert!(read("nonsense", &mut Values::new()).is_err());
    }

    #[test]
    fn medians_are_judged() {
        let text = "ours_mbit 1\nours_mbit 60\nours_mbit 70\nraw_mbit 100\nraw_mbit 100\nraw_mbit 900\nlost 3\n";
        let (good, row) = judge(&link(1, 200, 20, Bar::OfRaw(0.5)), &values(&format!("{MEMORY}{text}"))).unwrap();
        assert!(good && row.starts_with("60, plain datagrams 100: 60 %"), "{row}");
    }
}
