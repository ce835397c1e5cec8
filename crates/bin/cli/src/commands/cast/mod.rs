//! `stentor cast`: multicasts standard input line by line.

mod report;

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::BufReader;
use std::path::Path;
use std::time::{Duration, Instant};

use stentor::config::FabricKind;
use stentor::runtime::{
    BindConfig, Client, ClientId, ClusterFabric, ClusterRuntime, FabricDiagnostics, GroupId, Housekeeper, Recorder,
    SubmitError, client_round, life_now, now_ns,
};
use stentor::with_fabric;
use stentor_fabric::Backoff;
use stentor_multicast::ProcessRole;

use crate::args::{self, OnRoce};
use report::Casted;
use stentor_support::live::{
    self, HistoryFile, Input, Interrupt, Joining, Latency, Line, Lines, TooLong, Troubles, absent, begin_anew,
    unstarted, unwritten,
};
use stentor_support::streams::StandardInput;
use stentor_support::{Failure, Level, Output, Verdict, counted};

/// How long to wait for deliveries to a group that began anew: other groups settle what was under way to it.
const RESET: Duration = Duration::from_secs(2);
/// How long to wait for input while nothing is outstanding, before looking after the connections.
const PATIENCE: Duration = Duration::from_millis(10);

pub(super) fn run(args: &args::Cast, output: Output) -> Result<Verdict, Failure> {
    let config = &args.meeting.config;
    let plan = live::plan(config)?;
    let to = live::groups(&plan, &args.to, config)?;
    let asked = args.client.as_deref().map(|name| client_place(&plan, name, config)).transpose()?;
    super::node::make_room(&live::Need::of(&plan), "cast", output);
    let casting = Casting { args, plan: &plan, to: &to, asked, output };
    let OnRoce { bind, network } = &args.meeting.roce;
    live::refuse_foreign(&plan, *bind, network, config)?;
    let directory = live::directory(args.meeting.directory.as_ref());
    let meet = match plan.config().fabric() {
        FabricKind::Roce => "on RoCEv2".to_owned(),
        FabricKind::Verbs => "on RDMA devices".to_owned(),
        FabricKind::Ofi => "on libfabric".to_owned(),
        FabricKind::Shm | FabricKind::Sim => format!("sockets in {}", live::looked_in(&directory)),
    };
    let bind = live::bind_config(config, directory, *bind, network);
    with_fabric!(plan.config().fabric(), F => casting.run::<F>(&bind, meet))
}

/// What is to be done, on any fabric.
#[derive(Clone, Copy)]
struct Casting<'a> {
    args: &'a args::Cast,
    plan: &'a ClusterRuntime,
    to: &'a [GroupId],
    asked: Option<ClientId>,
    output: Output,
}

impl Casting<'_> {
    fn run<F: ClusterFabric>(&self, bind: &BindConfig, meet: String) -> Result<Verdict, Failure> {
        let Casting { args, plan, to, asked, output } = *self;
        let interrupt = Interrupt::catch()?;
        let made = Cell::new(false);
        let start = |client| begin_anew(bind.pcap.as_deref(), &made, || plan.start_client::<F>(client, bind));
        let joining = Joining {
            plan,
            config: &args.meeting.config,
            start: &start,
            meet,
            directory: args.meeting.directory.as_deref(),
            to: to.to_vec(),
            wait: args.meeting.wait.into(),
            timeout: Duration::from_secs(args.timeout),
            check: &|| interrupt.check(),
        };
        let joined = joining.join(asked, |text| output.log(Level::Warn, "cast", text))?;
        let name = plan.name(plan.topology().client_process(joined.id));
        joined.client.fabric().carrier().iter().for_each(|line| output.log(Level::Info, name, line));
        cast(*self, joined, &interrupt)
    }
}

fn cast<F: FabricDiagnostics>(
    casting: Casting<'_>,
    joined: live::Joined<F>,
    interrupt: &Interrupt,
) -> Result<Verdict, Failure> {
    let Casting { plan, output, .. } = casting;
    let limit = plan.config().limits().message_bytes as usize;
    let mut caster = Caster::new(casting, joined)?;
    let lines = Lines::read(|| Box::new(BufReader::new(StandardInput)), limit, TooLong::Ends)?;
    let ended = caster.cast(Feed { lines, limit, next: None, ended: None }, interrupt);
    let written = caster.close();
    let name = caster.name();
    for trouble in caster.client.fabric_mut().last_troubles() {
        output.log(Level::Warn, name, &trouble);
    }
    // What was sent is told also when something went wrong afterwards.
    let casted = Casted::new(&caster);
    match (ended, written) {
        (Ok(()), Ok(())) if output.is_json() => output.report(&casted)?,
        (ended, written) => {
            output.note(&casted.text());
            ended.and(written)?;
        }
    }
    Ok(Verdict::Good)
}

fn client_place(plan: &ClusterRuntime, name: &str, config: &Path) -> Result<ClientId, Failure> {
    let process = plan.process(name).map_err(|error| unstarted(error, config))?;
    match plan.topology().role(process) {
        Some(ProcessRole::Client(client)) => Ok(client),
        _ => Err(Failure::usage(
            format_args!("`{name}` is a member of a group"),
            "--client",
            "name a client, `c0` and so on, or none: then a free one is taken",
        )),
    }
}

/// A client that sends lines and waits for their deliveries.
struct Caster<'a, F: FabricDiagnostics> {
    casting: Casting<'a>,
    client: Client<F>,
    id: ClientId,
    recorder: Option<Recorder<HistoryFile>>,
    /// The history cannot be written any more: nothing more is multicast.
    unrecorded: Option<Failure>,
    /// Sequence and time of messages that are not known to be delivered.
    outstanding: VecDeque<(u64, Instant)>,
    latency: Latency,
    troubles: Troubles,
    messages: u64,
    bytes: u64,
    begin: Instant,
    /// When the last message was sent or delivered.
    progress: Instant,
}

impl<'a, F: FabricDiagnostics> Caster<'a, F> {
    fn new(casting: Casting<'a>, joined: live::Joined<F>) -> Result<Self, Failure> {
        let Casting { args, plan, .. } = casting;
        let me = plan.topology().client_process(joined.id);
        let recorder = args.meeting.history.as_deref().map(|path| HistoryFile::record(plan, me, path)).transpose()?;
        let mut client = joined.client;
        if args.meeting.operations {
            client.record_operations();
        }
        Ok(Caster {
            casting,
            client,
            id: joined.id,
            recorder: recorder.map(|recorder| recorder.in_life(life_now())),
            unrecorded: None,
            outstanding: VecDeque::new(),
            latency: Latency::default(),
            troubles: Troubles::default(),
            messages: 0,
            bytes: 0,
            begin: Instant::now(),
            progress: Instant::now(),
        })
    }

    fn cast(&mut self, mut feed: Feed, interrupt: &Interrupt) -> Result<(), Failure> {
        let mut backoff = Backoff::new(self.casting.args.meeting.wait.into());
        let mut housekeeper = Housekeeper::default();
        let mut interrupted = false;
        loop {
            let sent = self.send(&mut feed)?;
            client_round(&mut self.client, &mut backoff, &mut housekeeper, sent)
                .map_err(|error| Failure::run(error, "waiting", "report this as a bug"))?;
            self.take_delivered();
            self.record_operations();
            if let Some(failure) = self.unrecorded.take() {
                feed.end(Err(failure));
            }
            self.tell_troubles();
            if let Some(group) = self.client.reset_of(self.casting.to)
                && feed.next.is_none()
                && self.progress.elapsed() > RESET
                && !self.outstanding.is_empty()
            {
                return Err(self.reset(group));
            }
            if self.client.is_superseded() {
                return Err(self.superseded());
            }
            if interrupt.insists() {
                return Err(self.given_up(interrupt));
            }
            if interrupt.came() && !interrupted {
                interrupted = true;
                let what = format_args!("interrupted by {} after {} messages", interrupt.name(), self.messages);
                let remedy = "the lines that were not sent are in the input still";
                feed.end(Err(Failure::run(what, "standard input", remedy)));
                self.tell_what_is_awaited(interrupt);
            }
            if feed.next.is_none() && self.outstanding.is_empty() {
                if let Some(ended) = feed.ended {
                    return ended;
                }
                feed.take(feed.lines.wait(PATIENCE));
                self.progress = Instant::now();
            } else if self.progress.elapsed() > Duration::from_secs(self.casting.args.timeout) {
                return Err(self.stuck(feed.next.is_some()));
            }
        }
    }

    /// Sends lines until there is no room or no line. Returns whether it sent any.
    fn send(&mut self, feed: &mut Feed) -> Result<bool, Failure> {
        let mut sent = false;
        loop {
            if feed.next.is_none() && feed.ended.is_none() {
                feed.take(feed.lines.next());
            }
            let Some(line) = feed.next.as_deref() else { return Ok(sent) };
            let id = match self.client.next_id(self.casting.to, line) {
                Ok(id) => id,
                Err(SubmitError::Busy { .. } | SubmitError::NotConnected { .. }) => return Ok(sent),
                Err(SubmitError::GroupReset { group }) => return Err(self.reset(GroupId(group))),
                Err(error) => return Err(refused(&error)),
            };
            // Before it is multicast: who is killed then has told of it.
            if let Some(recorder) = &mut self.recorder {
                let written = recorder.multicast(now_ns(), id, self.casting.to, line).and_then(|()| recorder.flush());
                if let Err(error) = written {
                    self.give_up(&error);
                    return Ok(sent);
                }
            }
            self.client.submit(self.casting.to, line, true).map_err(|error| refused(&error))?;
            self.outstanding.push_back((id.sequence, Instant::now()));
            self.messages += 1;
            self.bytes += line.len() as u64;
            feed.next = None;
            self.progress = Instant::now();
            sent = true;
        }
    }

    fn take_delivered(&mut self) {
        let up_to = self.client.delivered_up_to();
        while let Some((_, since)) = self.outstanding.front().filter(|(sequence, _)| *sequence <= up_to) {
            self.latency.record(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX));
            self.progress = Instant::now();
            self.outstanding.pop_front();
        }
    }

    fn tell_troubles(&mut self) {
        let (output, name) = (self.casting.output, self.name());
        let plan = self.casting.plan;
        let mut say = |text: &str| output.log(Level::Warn, name, text);
        self.troubles.report_expelled(self.client.expelled(), |process| plan.name(process), &mut say);
        self.troubles.report(self.client.fabric_mut(), say);
    }

    fn record_operations(&mut self) {
        if let Some(recorder) = self.recorder.as_mut().filter(|_| self.casting.args.meeting.operations)
            && let Err(error) = recorder.operations(now_ns(), &self.client.take_operations())
        {
            self.give_up(&error);
        }
    }

    fn close(&mut self) -> Result<(), Failure> {
        if let Some(recorder) = &mut self.recorder
            && let Err(error) = recorder.flush()
        {
            self.give_up(&error);
        }
        self.unrecorded.take().map_or(Ok(()), Err)
    }

    /// Ends the history. What was multicast is in it, and nothing else is multicast from here on: a message without a record
    /// would look like one that nobody sent.
    fn give_up(&mut self, error: &std::io::Error) {
        if let Some(mut recorder) = self.recorder.take() {
            let _ = recorder.give_up(now_ns());
        }
        let path = self.casting.args.meeting.history.as_deref().unwrap_or(Path::new(""));
        let mut failure = unwritten(path, error);
        failure.what += &format!(
            "; {} multicast, no further line of the input is",
            counted(self.messages, "message was", "messages were")
        );
        self.unrecorded = Some(failure);
    }

    fn name(&self) -> &'a str {
        self.casting.plan.name(self.casting.plan.topology().client_process(self.id))
    }

    fn superseded(&self) -> Failure {
        let (left, sent) = (self.outstanding.len(), self.messages);
        let name = self.name();
        let what = format_args!(
            "another process has taken the place of client `{name}`; {left} of {sent} messages are not known to be delivered"
        );
        let remedy = "see what was delivered before sending them again (`stentor leader show` names what is undelivered); give each process a place of its own with --client";
        Failure::run(what, self.casting.args.meeting.config.display(), remedy)
    }

    /// Returns the failure of a cast to a group that began anew, and takes nothing more of this process.
    fn reset(&self, group: GroupId) -> Failure {
        let (left, sent) = (self.outstanding.len(), self.messages);
        let group = self.casting.plan.group_name(group);
        let what = format_args!(
            "{group} began anew, from another state, and takes nothing more of this process: {left} of {sent} messages are not known \
             to be delivered"
        );
        let remedy = "see what was delivered before sending them again; start this client again for what comes then";
        Failure::run(what, self.casting.args.meeting.config.display(), remedy)
    }

    /// It was asked to end, and waits for what is under way.
    fn tell_what_is_awaited(&self, interrupt: &Interrupt) {
        let (left, sent) = (self.outstanding.len(), self.messages);
        if left > 0 {
            let name = self.name();
            let text = format!(
                "{}: waits up to {} s for the delivery of {left} of {sent} messages; a second signal ends it at once",
                interrupt.name(),
                self.casting.args.timeout
            );
            self.casting.output.log(Level::Warn, name, &text);
        }
    }

    fn given_up(&self, interrupt: &Interrupt) -> Failure {
        let (left, sent) = (self.outstanding.len(), self.messages);
        let what = format_args!(
            "interrupted twice, by {} last: {left} of {sent} messages are not known to be delivered",
            interrupt.name()
        );
        let remedy = "see what was delivered before sending them again (`stentor leader show` names what is undelivered); without a second signal they are waited for";
        Failure::run(what, self.casting.args.meeting.config.display(), remedy)
    }

    fn stuck(&self, is_next_unsent: bool) -> Failure {
        let (left, sent) = (self.outstanding.len(), self.messages);
        let seconds = self.casting.args.timeout;
        let mut what = match left {
            0 => format!(
                "no progress for {seconds} s: {} so far",
                counted(sent, "message was delivered", "messages were delivered")
            ),
            _ => format!("no progress for {seconds} s: {left} of {sent} messages are not known to be delivered"),
        };
        if is_next_unsent {
            what += if left == 0 { ", but" } else { ", and" };
            what += " the groups take no more: the next line was not sent";
        }
        let gone = absent(self.casting.plan, &self.client, self.casting.to);
        let place = self.casting.args.meeting.config.display();
        if gone.is_empty() {
            let remedy = "`stentor leader show` says whether the groups work, and which clients' messages are undelivered; then wait longer with --timeout, or start this client anew if a \
                 group began from nothing meanwhile";
            return Failure::run(what, place, remedy);
        }
        what += &format!("; not there: {}", gone.join(", "));
        let remedy = "start them again with `stentor node`; a group goes on when it has a majority, and `stentor leader show` says whether it \
             does. See what was delivered before sending lines again";
        Failure::run(what, place, remedy)
    }
}

fn refused(error: &SubmitError) -> Failure {
    Failure::run(error, "standard input", "report this as a bug")
}

/// The lines of the input.
struct Feed {
    lines: Lines,
    limit: usize,
    /// Read, and not sent yet.
    next: Option<Vec<u8>>,
    /// There is no line any more, and why.
    ended: Option<Result<(), Failure>>,
}

impl Feed {
    /// Nothing more is sent.
    fn end(&mut self, ended: Result<(), Failure>) {
        (self.next, self.ended) = (None, Some(ended));
    }

    fn take(&mut self, input: Input) {
        let limit = self.limit;
        let outcome = match input {
            Input::Later => return,
            Input::Line(Line::Text(line)) => {
                self.next = Some(line);
                return;
            }
            Input::End => Ok(()),
            Input::Line(Line::TooLong { number }) => Err(Failure::usage(
                format_args!(
                    "line {number} is longer than {limit} bytes; all lines before it were multicast, it was not"
                ),
                format_args!("standard input:{number}"),
                "split the line, or raise `message_bytes` in [limits]",
            )),
            Input::Line(Line::Unreadable { number, error }) => Err(Failure::run(
                format_args!("cannot read: {error}; all lines before were multicast"),
                format_args!("standard input:{number}"),
                "give it an input that can be read",
            )),
        };
        self.ended = Some(outcome);
    }
}
