//! Chrome trace JSON: one track for each process, a slice for each post and landing, an arrow for each remote write.

use std::fmt::Write;

use stentor_fabric::ProcessId;

pub(crate) enum What {
    Post { verb: &'static str, bytes: u32, to: u16, flow: u64 },
    Landing { bytes: u64, part: u8, parts: u8, flow: Option<u64> },
    Instant(&'static str),
    Mark(String),
}

struct TraceEntry {
    at: u64,
    process: u16,
    what: What,
}

pub(crate) struct Trace {
    processes: usize,
    names: Vec<Option<String>>,
    entries: Vec<TraceEntry>,
}

impl Trace {
    pub(crate) fn record(&mut self, at: u64, process: ProcessId, what: What) {
        self.entries.push(TraceEntry { at, process: process.0, what });
    }

    pub(crate) fn new(processes: usize) -> Self {
        Trace { processes, names: vec![None; processes], entries: Vec::new() }
    }

    pub(crate) fn name(&mut self, process: ProcessId, name: &str) {
        self.names[process.index()] = Some(name.to_string());
    }

    /// Returns the trace as one JSON document. Times are in microseconds with three decimals, which is exact to the
    /// nanosecond.
    pub(crate) fn json(&self) -> String {
        let mut out = String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
        for process in 0..self.processes {
            let name = self.names[process].clone().unwrap_or_else(|| format!("p{process}"));
            let name = escape(&name);
            let _ = writeln!(
                out,
                "{{\"ph\":\"M\",\"pid\":{process},\"tid\":0,\"name\":\"process_name\",\"args\":{{\"name\":\"{name}\"}}}},\n\
                 {{\"ph\":\"M\",\"pid\":{process},\"tid\":0,\"name\":\"thread_name\",\"args\":{{\"name\":\"{name}\"}}}},"
            );
        }
        for entry in &self.entries {
            entry.write(&mut out);
        }
        // The list must not end with a comma.
        out.push_str("{\"ph\":\"M\",\"pid\":0,\"tid\":0,\"name\":\"trace_end\",\"args\":{}}\n]}\n");
        out
    }
}

impl TraceEntry {
    fn write(&self, out: &mut String) {
        let (us, ns, pid) = (self.at / 1000, self.at % 1000, self.process);
        let place = format!("\"ts\":{us}.{ns:03},\"pid\":{pid},\"tid\":0");
        let _ = match &self.what {
            What::Post { verb, bytes, to, flow } => writeln!(
                out,
                "{{\"ph\":\"X\",{place},\"dur\":0.001,\"name\":\"{verb} to p{to}\",\"cat\":\"post\",\
                 \"args\":{{\"bytes\":{bytes}}}}},\n\
                 {{\"ph\":\"s\",{place},\"id\":{flow},\"name\":\"remote\",\"cat\":\"flow\"}},"
            ),
            What::Landing { bytes, part, parts, flow } => {
                let _ = writeln!(
                    out,
                    "{{\"ph\":\"X\",{place},\"dur\":0.001,\"name\":\"landing\",\"cat\":\"landing\",\
                     \"args\":{{\"bytes\":{bytes},\"part\":\"{}/{parts}\"}}}},",
                    part + 1
                );
                flow.map_or(Ok(()), |flow| {
                    writeln!(
                        out,
                        "{{\"ph\":\"f\",\"bp\":\"e\",{place},\"id\":{flow},\"name\":\"remote\",\"cat\":\"flow\"}},"
                    )
                })
            }
            What::Instant(name) => {
                writeln!(out, "{{\"ph\":\"i\",\"s\":\"p\",{place},\"name\":\"{name}\",\"cat\":\"fault\"}},")
            }
            What::Mark(name) => {
                writeln!(out, "{{\"ph\":\"i\",\"s\":\"t\",{place},\"name\":\"{}\",\"cat\":\"mark\"}},", escape(name))
            }
        };
    }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out
}
