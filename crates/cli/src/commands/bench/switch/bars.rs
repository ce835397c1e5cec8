//! What must hold of what this bench measures. Rows that were not asked for are not judged; nor are times of a debug build.

use super::report::{Bar, Sender, SwitchReport};
use super::{FORWARD, MEMBERS, STEP};
use crate::commands::bench::report::Row;

/// Microseconds for a packet of 64 bytes to one receiver, all passes.
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

fn counts(counted: &SwitchReport) -> Vec<Bar> {
    let mut bars = Vec::new();
    let of = |way| counted.sender.iter().filter(move |line: &&Sender| line.way == way);
    let spread = |figure: fn(&Sender) -> f64| {
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for line in of("switch") {
            (least, most) = (least.min(figure(line)), most.max(figure(line)));
        }
        most / least
    };
    if let (Some(switched), Some(unicast)) = (of("switch").last(), of("unicast").last()) {
        bars.push(Bar::at_most(
            "sender's packets by the switch, most receivers in fewest",
            spread(|line| line.packets),
            1.0,
        ));
        bars.push(Bar::at_most(
            "sender's bytes by the switch, most receivers in fewest",
            spread(|line| line.bytes),
            1.0,
        ));
        let each = f64::from(unicast.receivers);
        bars.push(Bar::at_least(
            "unicast's packets, by the switch's and receivers",
            unicast.packets / switched.packets / each,
            1.0,
        ));
        bars.push(Bar::at_least(
            "unicast's bytes, by the switch's and receivers",
            unicast.bytes / switched.bytes / each,
            1.0,
        ));
    }
    if !counted.aggregation.is_empty() {
        let stalls = counted.aggregation.iter().map(|line| line.exact_stalls).fold(0.0, f64::max);
        bars.push(Bar::at_most("stalls of the exact least, nothing lost", stalls, 0.0));
    }
    bars
}
