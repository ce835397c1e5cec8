//! The report of a cast.

use serde::Serialize;
use stentor_support::live::Micros;
use stentor_support::{Human, Style, counted};

use super::Caster;

/// The document.
#[derive(Serialize)]
pub(super) struct Casted {
    client: String,
    to: Vec<String>,
    messages: u64,
    bytes: u64,
    /// Number of messages that are not known to be applied by all destination groups.
    outstanding: usize,
    seconds: f64,
    msgs_per_s: f64,
    /// Time from the multicast until the client has the replies of all destination groups.
    latency_us: Option<Micros>,
}

impl Casted {
    pub(super) fn new(caster: &Caster<'_>) -> Self {
        let plan = caster.casting.plan;
        let seconds = (caster.progress - caster.begin).as_secs_f64();
        let group = |group: &stentor::runtime::GroupId| plan.group_name(*group).to_owned();
        Casted {
            client: caster.name.to_owned(),
            to: caster.casting.to.iter().map(group).collect(),
            messages: caster.messages,
            bytes: caster.bytes,
            outstanding: caster.left(),
            seconds,
            msgs_per_s: if seconds > 0.0 { caster.messages as f64 / seconds } else { 0.0 },
            latency_us: caster.latency.micros(),
        }
    }

    pub(super) fn text(&self) -> String {
        let Casted { client, messages, outstanding, seconds, .. } = self;
        let latency = self.latency_us.map(|micros| format!("; until delivered: {micros}")).unwrap_or_default();
        let delivered = match outstanding {
            0 => "all delivered".to_owned(),
            n => format!("{n} not known to be delivered"),
        };
        let messages = counted(*messages, "message", "messages");
        format!("{client} to {}: {messages} in {seconds:.3} s, {delivered}{latency}", self.to.join(", "))
    }
}

impl Human for Casted {
    fn human(&self, _: Style) -> String {
        self.text() + "\n"
    }
}
