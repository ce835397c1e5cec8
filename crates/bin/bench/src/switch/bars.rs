//! Limits for the results of this bench. Rows that were not measured are not judged, nor are times of a debug build.

use super::{FORWARD, MEMBERS, STEP};
use crate::report::Row;
use crate::switch_report::{Bar, Sender, SwitchReport};

/// Largest time that all passes of a packet of 64 bytes to one receiver may take, in microseconds.
const STEP_US: f64 = 0.1;

pub(super) fn judge(rows: &[Row], counted: &SwitchReport, release: bool) -> Vec<Bar> {
    let mut bars = counts(counted);
    if release {
        bars.extend(times(rows));
    }
    bars
}

fn times(rows: &[Row]) -> Vec<Bar> {
    let row = |name: String| rows.iter().find(|row| row.name == name);
    let ratio = |name: String| row(name).and_then(|row| row.ratio);
    let inverse = |name: String| ratio(name).map(f64::recip);
    let one = row(format!("{STEP}1")).filter(|row| row.bytes <= 64).and_then(|row| row.p50_us);
    [
        one.map(|us| Bar::at_most("step, a packet to one receiver, us", us, STEP_US)),
        ratio(format!("{STEP}32")).map(|ratio| Bar::at_most("step, a packet to 32, in 32 times one", ratio, 1.1)),
        inverse(format!("{FORWARD}8")).map(|part| Bar::at_least("copies to 8, part of the copier's", part, 0.6)),
        inverse(format!("{FORWARD}32")).map(|part| Bar::at_least("copies to 32, part of the copier's", part, 0.6)),
        inverse(MEMBERS.to_owned()).map(|times| Bar::at_least("connecting anew, in control packets", times, 10.0)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A figure of a sender's report.
type Figure = fn(&Sender) -> f64;

fn counts(counted: &SwitchReport) -> Vec<Bar> {
    let mut bars = Vec::new();
    let of = |way| counted.sender.iter().filter(move |line: &&Sender| line.way == way);
    let figures: [(Figure, [&'static str; 2]); 2] = [
        (
            |line| line.packets,
            [
                "sender's packets by the switch, most receivers in fewest",
                "unicast's packets, by the switch's and receivers",
            ],
        ),
        (
            |line| line.bytes,
            [
                "sender's bytes by the switch, most receivers in fewest",
                "unicast's bytes, by the switch's and receivers",
            ],
        ),
    ];
    if let (Some(switched), Some(unicast)) = (of("switch").next_back(), of("unicast").next_back()) {
        for (figure, [name, _]) in figures {
            let least = of("switch").map(figure).fold(f64::INFINITY, f64::min);
            let most = of("switch").map(figure).fold(0.0, f64::max);
            bars.push(Bar::at_most(name, most / least, 1.0));
        }
        let each = f64::from(unicast.receivers);
        let times = |figure: Figure| figure(unicast) / figure(switched) / each;
        bars.extend(figures.map(|(figure, [_, name])| Bar::at_least(name, times(figure), 1.0)));
    }
    if !counted.aggregation.is_empty() {
        let stalls = counted.aggregation.iter().map(|line| line.exact_stalls).fold(0.0, f64::max);
        bars.push(Bar::at_most("stalls of the exact least, nothing lost", stalls, 0.0));
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Bound;
    use crate::switch_report::Aggregated;

    fn row(name: &str, us: f64, ratio: f64) -> Row {
        Row { p50_us: Some(us), ..Row::new(name, 64, 1, Bound::us("", us / ratio), ratio) }
    }

    fn line(receivers: u8, way: &'static str, packets: f64) -> Sender {
        Sender { receivers, way, packets, bytes: 100.0 * packets, answers: 1.0, answer_bytes: 48.0 }
    }

    fn counted(by_switch: f64, stalls: f64) -> SwitchReport {
        let sender = vec![line(1, "switch", 1.0), line(1, "unicast", 1.0), line(8, "switch", by_switch)];
        let sender = [sender, vec![line(8, "unicast", 8.0)]].concat();
        let (round_stalls, exact_stalls, round_packet_times, exact_packet_times) = (0.5, stalls, 900.0, 17.0);
        let aggregation = vec![Aggregated {
            receivers: 2,
            jitter: 2.0,
            runs: 10,
            round_stalls,
            exact_stalls,
            round_packet_times,
            exact_packet_times,
        }];
        SwitchReport { sender, aggregation, bars: Vec::new() }
    }

    fn missed(rows: &[Row], counted: &SwitchReport, release: bool) -> Vec<&'static str> {
        judge(rows, counted, release).into_iter().filter(|bar| !bar.ok).map(|bar| bar.name).collect()
    }

    fn rows(one: f64, all: f64, copies: f64, members: f64) -> Vec<Row> {
        let step = [row(&format!("{STEP}1"), one, 1.0), row(&format!("{STEP}32"), 32.0 * one * all, all)];
        let forward = [8, 32].map(|n| row(&format!("{FORWARD}{n}"), 1.0, copies));
        [step.as_slice(), &forward, &[row(MEMBERS, 10.0, members)]].concat()
    }

    #[test]
    fn each_bar_can_be_missed() {
        let (fine, good) = (rows(0.09, 1.09, 1.5, 0.09), counted(1.0, 0.0));
        assert_eq!(judge(&fine, &good, true).len(), 10);
        assert!(missed(&fine, &good, true).is_empty());
        let slow = [rows(0.11, 1.0, 1.0, 0.05), rows(0.05, 1.2, 1.0, 0.05), rows(0.05, 1.0, 1.0, 0.2)];
        for (rows, what) in slow.iter().zip(["to one receiver", "to 32", "connecting anew"]) {
            let missed = missed(rows, &good, true);
            assert!(missed.len() == 1 && missed[0].contains(what), "{what}: {missed:?}");
        }
        assert_eq!(missed(&rows(0.05, 1.0, 2.0, 0.05), &good, true).len(), 2, "half of the copier's copies");
        assert_eq!(missed(&rows(9.0, 9.0, 9.0, 9.0), &good, false).len(), 0, "times of a debug build say nothing");
        assert_eq!(missed(&[], &counted(2.0, 0.0), false).len(), 4, "two packets to eight instead of one");
        assert_eq!(missed(&[], &counted(1.0, 0.1), false), ["stalls of the exact least, nothing lost"]);
    }
}
