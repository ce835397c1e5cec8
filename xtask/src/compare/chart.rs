//! Draws a report as an SVG file, which is formatted as text. The drawing follows the reader's choice of light or dark
//! colours.
//!
//! Each place has two panels: latencies one at a time, and rates of streams, by payload. At each payload the best of a
//! system's settings at the place is drawn, as in the ratios. Both scales are logarithmic.

use std::fmt::Write as _;

use super::report::{Report, Told};
use super::system::PAIR;

/// Inner width of a panel.
const WIDTH: f64 = 300.0;
/// Inner height of a panel.
const HEIGHT: f64 = 170.0;
/// Room at the left of a panel, for the labels of the axis.
const LEFT: f64 = 64.0;
/// Room above a panel, for the title.
const TOP: f64 = 34.0;
/// Room below a panel, for the labels of the axis.
const BOTTOM: f64 = 26.0;
/// Height of a line of the legend.
const LINE: f64 = 18.0;
/// Room for the legend beside the panels.
const LEGEND: f64 = 150.0;

/// Colours of systems on light and on dark ground, which people with impaired colour vision can distinguish. The first
/// [`OURS`] are Stentor's.
const COLOURS: [(&str, &str); 10] = [
    ("#0072b2", "#56b4e9"),
    ("#00a0b4", "#a6e6ff"),
    ("#d55e00", "#ff8a3d"),
    ("#009e73", "#35c99e"),
    ("#a0508c", "#e09ccb"),
    ("#8a6d00", "#f0e442"),
    ("#555555", "#bbbbbb"),
    ("#7a3e00", "#d9a066"),
    ("#4b3fbb", "#a59bff"),
    ("#c2185b", "#ff7fb0"),
];

/// Number of colours that are Stentor's.
const OURS: usize = 2;

/// The curve of a system.
struct Curve {
    name: &'static str,
    colour: usize,
    /// The figure at each payload, or `None` if there is none.
    figures: Vec<Option<f64>>,
}

/// Returns the drawing.
pub(super) fn svg(report: &Report) -> String {
    let payloads = report.payloads();
    let row = TOP + HEIGHT + BOTTOM + 10.0;
    let (width, height) = (2.0 * (LEFT + WIDTH) + LEGEND, row * report.places().len() as f64 + 6.0);
    let mut text =
        format!("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n");
    text += "<title>Stentor beside other systems, by payload</title>\n";
    text += &style();
    let _ = writeln!(text, "<rect class=\"ground\" width=\"{width}\" height=\"{height}\"/>");
    for (n, place) in report.places().into_iter().enumerate() {
        let latencies = curves(report, place, &payloads, Told::latency, f64::min);
        let rates = curves(report, place, &payloads, Told::rate, f64::max);
        let _ = writeln!(text, "<g transform=\"translate(0 {})\">", row * n as f64);
        text += &panel(LEFT, &format!("{place}: p50, µs"), &payloads, &latencies);
        text += &panel(2.0 * LEFT + WIDTH, "messages/s", &payloads, &rates);
        text += &legend(2.0 * (LEFT + WIDTH) + 12.0, &latencies);
        text += "</g>\n";
    }
    text + "</svg>\n"
}

/// Returns the style sheet with the colours for both grounds.
fn style() -> String {
    let rules = |ground: &str, ink: &str, grid: &str, colour: fn(&(&'static str, &'static str)) -> &'static str| {
        let mut rules = format!(".ground{{fill:{ground}}}text{{fill:{ink}}}.grid{{stroke:{grid}}}");
        for (n, colours) in COLOURS.iter().enumerate() {
            let _ = write!(rules, ".c{n}{{stroke:{0};fill:{0}}}", colour(colours));
        }
        rules
    };
    let light = rules("#ffffff", "#222222", "#dddddd", |colours| colours.0);
    let dark = rules("#14171a", "#e6e6e6", "#3a3f44", |colours| colours.1);
    format!(
        "<style>text{{font:11px sans-serif}}.head{{font-weight:bold}}.curve{{fill:none;stroke-width:2}}{light}\
         @media (prefers-color-scheme: dark){{{dark}}}</style>\n"
    )
}

/// Returns the curves of a place, with the best of each system's settings.
fn curves(
    report: &Report,
    place: &str,
    payloads: &[u32],
    figure: fn(&Told, u32) -> Option<f64>,
    better: fn(f64, f64) -> f64,
) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for system in report.at(place) {
        if curves.iter().any(|curve| curve.name == system.name) {
            continue;
        }
        let alike = || report.at(place).filter(|other| other.name == system.name);
        let best = |bytes: &u32| alike().filter_map(|told| figure(told, *bytes)).reduce(better);
        let colour = colour(report, system);
        curves.push(Curve { name: system.name, colour, figures: payloads.iter().map(best).collect() });
    }
    curves
}

/// Returns the colour of a system, which is the same at every place. The first colour is Stentor's, and the second
/// belongs to a second system of Stentor at the same place.
fn colour(report: &Report, system: &Told) -> usize {
    if system.ours {
        return usize::from(report.at(system.place).find(|own| own.ours).is_some_and(|own| own.name != system.name));
    }
    let known = |name: &'static str| name.strip_suffix(PAIR).unwrap_or(name);
    let mut others = Vec::new();
    for other in report.systems.iter().filter(|other| !other.ours) {
        if !others.contains(&known(other.name)) {
            others.push(known(other.name));
        }
    }
    others.iter().position(|name| *name == known(system.name)).map_or(0, |at| OURS + at % (COLOURS.len() - OURS))
}

/// Returns a panel whose inner left edge is at `left`.
fn panel(left: f64, title: &str, payloads: &[u32], curves: &[Curve]) -> String {
    let mut text = format!("<text class=\"head\" x=\"{left}\" y=\"20\">{}</text>\n", escaped(title));
    let (low, high) = decades(curves.iter().flat_map(|curve| &curve.figures).flatten().copied());
    let y = |figure: f64| TOP + HEIGHT * (1.0 - (figure.log10() - f64::from(low)) / f64::from(high - low));
    let x = |n: usize| left + WIDTH * (n as f64 + 0.5) / payloads.len().max(1) as f64;
    for decade in low..=high {
        let (at, right) = (y(10_f64.powi(decade)), left + WIDTH);
        let _ = writeln!(text, "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>");
        let (edge, below) = (left - 6.0, at + 4.0);
        let label = short(10_f64.powi(decade));
        let _ = writeln!(text, "<text x=\"{edge}\" y=\"{below:.1}\" text-anchor=\"end\">{label}</text>");
    }
    for (n, bytes) in payloads.iter().enumerate() {
        let (at, below) = (x(n), TOP + HEIGHT + 16.0);
        let label = if *bytes >= 1024 { format!("{} KiB", bytes / 1024) } else { format!("{bytes} B") };
        let _ = writeln!(text, "<text x=\"{at:.1}\" y=\"{below}\" text-anchor=\"middle\">{label}</text>");
    }
    for Curve { name, colour, figures } in curves {
        let points: Vec<_> = figures.iter().enumerate().filter_map(|(n, figure)| Some((x(n), y((*figure)?)))).collect();
        let line: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        // The style of the element overrides the style of the colour, so the curve itself is not filled.
        let _ = writeln!(
            text,
            "<polyline class=\"curve c{colour}\" style=\"fill:none\" points=\"{}\"><title>{name}</title></polyline>",
            line.join(" ")
        );
        for (x, y) in points {
            let _ = writeln!(text, "<circle class=\"c{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
        }
    }
    text
}

fn legend(left: f64, curves: &[Curve]) -> String {
    let mut text = String::new();
    for (n, Curve { name, colour, .. }) in curves.iter().enumerate() {
        let y = TOP + LINE * n as f64;
        let _ = writeln!(text, "<rect class=\"c{colour}\" x=\"{left}\" y=\"{y}\" width=\"10\" height=\"10\"/>");
        let _ = writeln!(text, "<text x=\"{}\" y=\"{}\">{}</text>", left + 16.0, y + 9.0, escaped(name));
    }
    text
}

/// Returns the powers of ten around all figures, at least one decade.
fn decades(figures: impl Iterator<Item = f64>) -> (i32, i32) {
    let logarithms = figures.filter(|figure| *figure > 0.0).map(f64::log10);
    let (low, high) = logarithms.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), l| (low.min(l), high.max(l)));
    if low > high {
        return (0, 1);
    }
    let low = low.floor() as i32;
    (low, (high.ceil() as i32).max(low + 1))
}

/// Formats a power of ten with a unit prefix.
fn short(figure: f64) -> String {
    match figure {
        large if large >= 1e6 => format!("{:.0} M", large / 1e6),
        large if large >= 1e3 => format!("{:.0} k", large / 1e3),
        other if other >= 1.0 => format!("{other:.0}"),
        small => format!("{small}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::measured;
    use super::*;

    #[test]
    fn a_place_has_two_panels_and_the_best_setting_of_each_system() {
        let ours = measured("stentor", 0, &[[(9.0, 10.0), (900.0, 99.0)]]);
        let udpu = measured("cpg", 0, &[[(1.0, 1000.0), (400.0, 999.0)]]);
        let knet = measured("cpg", 1, &[[(1.0, 100.0), (200.0, 999.0)]]);
        let report = Report::of(&[ours, udpu, knet], Vec::new(), Vec::new());
        let text = svg(&report);
        assert_eq!(text.matches("<polyline").count(), 4, "{text}");
        // The scale is from 10 to 100 µs: Stentor's latency is at the bottom, and the better latency of cpg's two
        // settings is at the top.
        let points: Vec<_> =
            text.lines().filter_map(|line| line.split("points=\"").nth(1)?.split('"').next()).collect();
        assert_eq!(points[..2], ["214.0,204.0", "214.0,34.0"], "{text}");
        assert!(text.contains("prefers-color-scheme: dark") && text.ends_with("</svg>\n"));
        for element in ["g", "text", "style", "title", "polyline"] {
            let (opened, closed) = (format!("<{element}"), format!("</{element}>"));
            let opened = text.matches(&format!("{opened} ")).count() + text.matches(&format!("{opened}>")).count();
            assert_eq!(opened, text.matches(&closed).count(), "{element}");
        }
    }

    #[test]
    fn a_system_has_one_colour_at_all_places() {
        let runs = [[(9.0, 10.0), (900.0, 99.0)]];
        let all = [("stentor", 0), ("cpg", 0), ("nats", 0), ("stentor", 2), ("nats", 2), ("etcd", 2)];
        let report = Report::of(&all.map(|(name, setting)| measured(name, setting, &runs)), Vec::new(), Vec::new());
        let colours: Vec<_> = report.systems.iter().map(|system| colour(&report, system)).collect();
        assert_eq!(colours, [0, 2, 3, 0, 3, 4]);
    }

    #[test]
    fn own_systems_differ_in_colour_and_a_pair_has_the_colour_of_its_system() {
        let runs = [[(9.0, 10.0), (900.0, 99.0)]];
        let all = [("stentor-channel", 1), ("stentor-channel-in-place", 0), ("iceoryx2", 0), ("iceoryx2-pair", 0)];
        let report = Report::of(&all.map(|(name, setting)| measured(name, setting, &runs)), Vec::new(), Vec::new());
        let colours: Vec<_> = report.systems.iter().map(|system| colour(&report, system)).collect();
        assert_eq!(colours, [0, 1, 2, 2]);
    }

    #[test]
    fn scales_end_at_powers_of_ten() {
        assert_eq!(decades([3.0, 250.0].into_iter()), (0, 3));
        assert_eq!(decades([100.0].into_iter()), (2, 3));
        assert_eq!(decades([].into_iter()), (0, 1));
        assert_eq!([0.1, 10.0, 1e3, 1e7].map(short), ["0.1", "10", "1 k", "10 M"]);
    }
}
