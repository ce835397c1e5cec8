//! The report of a demonstration.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use serde::Serialize;
use stentor::runtime::{ClusterRuntime, FabricDiagnostics};
use stentor::with_fabric;
use stentor_checker::Report;
use stentor_fabric::ProcessId;
use stentor_multicast::Step;
use stentor_support::live::Micros;
use stentor_support::{Human, Style, Verdicts, columns, counted, verdict_lines, verdicts};

use super::copier::Switched;
use super::load::Sent;
use super::outcome::Outcome;
use super::stage::Stage;
use super::text::Text;
use crate::commands::node::Served;

/// The document.
#[derive(Serialize)]
pub(super) struct DemoReport {
    pub(super) ok: bool,
    /// Verdicts by property: `ok`, `violated` or `not_checked`.
    properties: Verdicts,
    counter_example: Option<String>,
    messages: u64,
    deliveries: u64,
    latency_us: Option<Micros>,
    msgs_per_s: f64,
    writes_per_message: f64,
    leader_changes: u64,
    /// The process that was killed and restarted.
    killed: Option<String>,
    /// Time from the kill to the next leader's first delivery, in milliseconds.
    outage_ms: Option<f64>,
    /// Time from the kill to the first delivery, in the group that lost its leader, of a message multicast after the
    /// kill. In milliseconds.
    failover_ms: Option<f64>,
    /// Time from the restart until the process had caught up, in milliseconds.
    rejoin_ms: Option<f64>,
    history: PathBuf,
    input: String,
    /// The fabric.
    fabric: &'static str,
    /// The provider that carried the messages, if it is chosen at start. It is the same for all processes, because
    /// processes with different providers cannot connect.
    carrier: Option<String>,
    groups: usize,
    replicas: usize,
    /// Number of deliveries by process.
    delivered: BTreeMap<String, u64>,
    messages_to_one_group: u64,
    messages_alone: u64,
    messages_windowed: u64,
    /// Remote writes per message, by step.
    writes_by_step: BTreeMap<&'static str, f64>,
    /// Remote writes per message without batching, by step.
    items_by_step: BTreeMap<&'static str, f64>,
    /// Number of refused inputs from peers.
    rejected: u64,
    /// The work of the switch, with `--switch`.
    switch: Option<Switched>,
}

/// Properties about leader changes and restarted processes. A run without such events does not check them.
const OF_FAILURES: [&str; 2] = ["M10", "M11"];

fn is_good(property: &str, verdict: &str, killed: bool) -> bool {
    verdict == "ok" || (verdict == "not_checked" && !killed && OF_FAILURES.contains(&property))
}

impl DemoReport {
    pub(super) fn new(
        plan: &ClusterRuntime,
        stage: &Stage,
        text: &Text,
        sent: &Sent,
        served: &[Served],
        report: &Report,
        outcome: &Outcome,
    ) -> Self {
        let per_message = |own: u64, step: Step, of: &dyn Fn(&Served) -> Option<u64>| {
            let all = own + served.iter().filter_map(of).sum::<u64>();
            (step.name(), all as f64 / sent.messages as f64)
        };
        let steps = Step::ALL.iter();
        let writes = |step: &Step| {
            per_message(sent.counts.writes(*step), *step, &|served| served.writes.get(step.name()).copied())
        };
        let items = |step: &Step| {
            per_message(sent.counts.items(*step), *step, &|served| served.items.get(step.name()).copied())
        };
        let writes_by_step: BTreeMap<_, _> = steps.clone().map(writes).collect();
        let items_by_step: BTreeMap<_, _> = steps.filter(|step| **step != Step::Credit).map(items).collect();
        let protocol = sent.counts.protocol_writes() + served.iter().map(Served::protocol_writes).sum::<u64>();
        let rejected = sent.counts.rejected + served.iter().map(|served| served.rejected).sum::<u64>();
        let properties = verdicts(report);
        let members = plan.topology().all_members();
        let delivered = outcome.deliveries[..members].iter().zip(0..);
        let windowed = &sent.windowed;
        let killed = sent.crash.is_some();
        DemoReport {
            // Writes of a process from before it was killed may be refused afterwards.
            ok: (rejected == 0 || killed)
                && sent.crash.is_none_or(|crash| crash.back > 0 && outcome.outage.is_some())
                && properties.iter().all(|(name, verdict)| is_good(name, verdict, killed)),
            properties,
            counter_example: report.counter_example.clone(),
            messages: sent.messages,
            deliveries: report.counts.deliveries,
            latency_us: outcome.latency.micros(),
            msgs_per_s: outcome.rate.per_second(),
            writes_per_message: protocol as f64 / sent.messages as f64,
            leader_changes: outcome.leader_changes,
            killed: sent.crash.map(|crash| plan.name(crash.process).to_owned()),
            outage_ms: outcome.outage.map(|(outage, _)| outage as f64 / 1e6),
            failover_ms: outcome.failover.map(|failover| failover as f64 / 1e6),
            rejoin_ms: outcome.outage.map(|(_, rejoin)| rejoin as f64 / 1e6),
            history: stage.path().to_owned(),
            input: text.source.clone(),
            fabric: with_fabric!(plan.config().fabric(), F => F::NAME),
            carrier: sent.carrier.clone(),
            groups: plan.topology().groups(),
            replicas: members / plan.topology().groups(),
            delivered: delivered.map(|(n, process)| (plan.name(ProcessId(process)).to_owned(), *n)).collect(),
            messages_to_one_group: sent.to_one,
            messages_alone: sent.alone.clone().count() as u64,
            messages_windowed: if windowed.is_empty() { 0 } else { windowed.end() - windowed.start() + 1 },
            writes_by_step,
            items_by_step,
            rejected,
            switch: None,
        }
    }

    /// Adds the work of the switch, if there is one. A switch that made no copies fails the demonstration.
    pub(super) fn copied(mut self, switch: Option<Switched>) -> Self {
        self.ok &= switch.as_ref().is_none_or(Switched::is_used);
        self.switch = switch;
        self
    }

    fn figures(&self, style: Style) -> String {
        let DemoReport {
            messages, deliveries, messages_to_one_group: to_one, messages_alone, messages_windowed, ..
        } = self;
        let mut text = format!(
            "{messages} messages, {to_one} to one group and {} to several; {deliveries} deliveries\n",
            messages - to_one
        );
        if let Some(micros) = &self.latency_us {
            let _ =
                writeln!(text, "latency     {micros}; to the last delivery, {messages_alone} messages one at a time");
        }
        let how = match messages_windowed {
            0 => "one at a time: the text is short".to_owned(),
            n => format!("{n} messages, as many at a time as the window takes"),
        };
        let _ = writeln!(text, "throughput  {:.0} messages/s; {how}", self.msgs_per_s);
        let by_step = |steps: &BTreeMap<&str, f64>| {
            let told = Step::ALL.iter().filter(|step| !matches!(step, Step::Credit) && **step < Step::Reply);
            let told = told.filter_map(|step| Some((step.name(), steps.get(step.name())?)));
            told.map(|(step, n)| format!("{step} {n:.2}")).collect::<Vec<_>>().join(", ")
        };
        let alone: f64 = self.items_by_step.values().sum();
        let _ =
            writeln!(text, "writes      {:.2} per message: {}", self.writes_per_message, by_step(&self.writes_by_step));
        if let Some(switched) = &self.switch {
            let of = |steps: &BTreeMap<&str, f64>| steps.get(Step::Body.name()).copied().unwrap_or_default();
            let (posted, receivers) = (of(&self.writes_by_step), of(&self.items_by_step));
            let _ = writeln!(
                text,
                "            {}: the client posted {posted:.2} writes per message instead of {receivers:.2}",
                switched.human(style)
            );
        }
        let credits = self.writes_by_step.get(Step::Credit.name()).copied().unwrap_or_default();
        let _ = writeln!(text, "            and {credits:.2} for flow control");
        let _ = writeln!(text, "            {alone:.2} without batching: {}", by_step(&self.items_by_step));
        text
    }
}

impl Human for DemoReport {
    fn human(&self, style: Style) -> String {
        let processes = self.delivered.len();
        let carrier = self.carrier.as_ref().map_or(String::new(), |carrier| format!(" ({carrier})"));
        let mut text = format!(
            "{processes} processes in {} groups of {}, and a client, on {}{}\ninput: {}\n\n",
            self.groups, self.replicas, self.fabric, carrier, self.input
        );
        let rows = self.delivered.iter().map(|(name, n)| vec![name.clone(), format!("delivered {n}")]);
        text += &columns(&rows.collect::<Vec<_>>());
        text += &self.figures(style);
        let changes = counted(self.leader_changes, "change", "changes");
        let _ = match (&self.killed, self.failover_ms, self.rejoin_ms) {
            (Some(killed), Some(failover), Some(rejoin)) => writeln!(
                text,
                "leaders     {changes}; {killed} led and was killed half-way: fail-over took {failover:.1} ms, \
                 from the kill to the next delivery; started again, it was back in {rejoin:.0} ms\n"
            ),
            (Some(killed), ..) => writeln!(text, "leaders     {changes}; {killed} was killed, nobody led\n"),
            (None, ..) => writeln!(text, "leaders     {changes}; nothing is killed\n"),
        };
        text += &verdict_lines(&self.properties, style);
        if self.rejected > 0 {
            let inputs = format!("{} inputs of peers were refused", self.rejected);
            let _ = match &self.killed {
                Some(_) => {
                    writeln!(text, "\n{inputs}: a peer wrote them after this process had replaced the connection")
                }
                None => writeln!(text, "{}: {inputs}", style.bad("failed")),
            };
        }
        if let Some(example) = &self.counter_example {
            let _ = writeln!(text, "\n{} {example}", style.bad("counter-example"));
        }
        let _ = writeln!(text, "\nhistory: {0}; again: stentor check {0}/*.jsonl", self.history.display());
        text
    }
}
