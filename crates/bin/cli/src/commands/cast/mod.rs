//! `stentor cast`: multicasts standard input line by line.

mod feed;
mod recording;
mod report;
mod sending;

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use stentor::config::FabricKind;
use stentor::runtime::{BindConfig, Client, ClientId, ClusterFabric, ClusterRuntime, FabricDiagnostics, GroupId};
use stentor::{
    ClientBuilder, ClientError, ClientErrorKind, Cluster, Groups, LocalClient, Outcome, Refused, Request, Turn, Why,
    with_fabric,
};
use stentor::{ClientWatch, OnSender};
use stentor_multicast::{ProcessRole, RemoteOp};

use crate::args::{self, OnRoce};
use feed::Feed;
use recording::Recording;
use report::Casted;
use sending::Sending;
use stentor_support::live::{self, Interrupt, Joining, Latency, Troubles, absent, begin_anew, unstarted};
use stentor_support::{Failure, Level, Output, Verdict, counted};

/// Longest time without progress before the command gives up the other messages once one is lost. Their groups may
/// still settle them.
const RESET: Duration = Duration::from_secs(2);
/// Longest wait for input while nothing is outstanding. After that, the connections are handled again.
const PATIENCE: Duration = Duration::from_millis(10);
/// Shortest lifetime of the session if this process stops running.
const TTL: Duration = Duration::from_secs(30);
/// Longest lifetime of a session.
const LONGEST_TTL: Duration = Duration::from_secs(600);

pub(super) fn run(args: &args::Cast, output: Output) -> Result<Verdict, Failure> {
    let config = &args.meeting.config;
    let plan = Arc::new(live::plan(config)?);
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

/// The task of a cast, on any fabric.
#[derive(Clone, Copy)]
struct Casting<'a> {
    args: &'a args::Cast,
    plan: &'a Arc<ClusterRuntime>,
    to: &'a [GroupId],
    asked: Option<ClientId>,
    output: Output,
}

impl Casting<'_> {
    fn run<F: ClusterFabric + 'static>(&self, bind: &BindConfig, meet: String) -> Result<Verdict, Failure> {
        let Casting { args, plan, to, asked, output } = *self;
        let interrupt = Interrupt::catch()?;
        let (begin, client) = (Instant::now(), self.client()?);
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
        let left = joining.timeout.saturating_sub(begin.elapsed());
        let caster = self.open(client, joined, left.max(Duration::from_secs(1)), &interrupt)?;
        cast(caster, &interrupt)
    }

    /// Returns the client to start, and its groups.
    fn client(&self) -> Result<(ClientBuilder, Groups), Failure> {
        let Casting { args, plan, .. } = *self;
        let cluster = Cluster::of(Arc::clone(plan));
        let to = cluster.groups().enumerate().filter(|(at, _)| self.to.contains(&GroupId(*at as u16)));
        let to = Groups::from(&to.map(|(_, group)| group).collect::<Vec<_>>()[..]);
        let ttl = (2 * Duration::from_secs(args.timeout)).clamp(TTL, LONGEST_TTL);
        let builder = cluster.client().groups(to.clone()).wait(args.meeting.wait.into()).session_ttl(ttl);
        builder.check().map_err(|error| self.unopened(&error))?;
        Ok((builder, to))
    }

    /// Begins the history, and opens the session that precedes all messages.
    fn open<F: ClusterFabric + 'static>(
        &self,
        (builder, to): (ClientBuilder, Groups),
        joined: live::Joined<F>,
        patience: Duration,
        interrupt: &Interrupt,
    ) -> Result<Caster<'_>, Failure> {
        let Casting { args, plan, .. } = *self;
        let me = plan.topology().client_process(joined.id);
        let history = args.meeting.history.as_deref();
        let recording = history.map(|path| Recording::begin(plan, me, path)).transpose()?;
        let mut joined = joined.client;
        if args.meeting.operations {
            joined.record_operations();
        }
        let is_open = Arc::new(AtomicBool::new(false));
        let goes_on = {
            let (is_open, interrupt) = (Arc::clone(&is_open), interrupt.clone());
            // The first signal ends a wait for the session's opening. The second one ends the wait for its end.
            move || if is_open.load(Ordering::Relaxed) { !interrupt.insists() } else { !interrupt.came() }
        };
        let watch = ClientWatch {
            multicast: recording.as_ref().map(Recording::of_multicasts),
            goes_on: Some(Box::new(goes_on)),
        };
        let opened = builder.patience(patience).connect_local_on(joined, watch);
        let client = opened.map_err(|error| {
            let unwritten = recording.as_ref().and_then(Recording::take_failure);
            interrupt.check().err().or(unwritten).unwrap_or_else(|| self.unopened(&error))
        })?;
        is_open.store(true, Ordering::Relaxed);
        Ok(Caster {
            casting: *self,
            name: plan.name(me),
            cluster: Cluster::of(Arc::clone(plan)),
            to,
            client,
            recording,
            sending: Sending::default(),
            lost: None,
            latency: Latency::default(),
            troubles: Troubles::default(),
            messages: 0,
            bytes: 0,
            begin: Instant::now(),
            progress: Instant::now(),
        })
    }

    /// Returns the failure of a session that could not be opened.
    fn unopened(&self, error: &ClientError) -> Failure {
        let place = self.args.meeting.config.display();
        match error.kind() {
            ClientErrorKind::Limits => Failure::usage(error.what(), place, error.remedy()),
            ClientErrorKind::TooManySessions => {
                let remedy = "wait until a client ends, or until the sessions of killed clients have expired; or raise `sessions` \
                              in [limits]";
                Failure::run(error.what(), place, remedy)
            }
            ClientErrorKind::Unreachable => Failure::run(
                error.what(),
                place,
                "a client waits for a majority of each group that it multicasts to, and of the home group of its client id: `stentor leader \
                 show` says which group does not work, and why",
            ),
            _ => Failure::run(error.what(), place, error.remedy()),
        }
    }
}

fn cast(mut caster: Caster<'_>, interrupt: &Interrupt) -> Result<Verdict, Failure> {
    let output = caster.casting.output;
    let limits = caster.casting.plan.config().limits();
    let ended = Feed::read(limits.message_bytes as usize).and_then(|feed| caster.cast(feed, interrupt));
    for trouble in caster.client.on_sender(LastTroubles) {
        output.log(Level::Warn, caster.name, &trouble);
    }
    // The report of sent messages is printed also after a failure.
    let casted = Casted::new(&caster);
    let written = caster.close();
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
            "name a client id, `c0` and so on, or leave --client out to use a free one",
        )),
    }
}

struct LastTroubles;

impl OnSender for LastTroubles {
    type Output = Vec<String>;

    fn on<F: FabricDiagnostics>(self, sender: &mut Client<F>) -> Vec<String> {
        sender.fabric_mut().last_troubles()
    }
}

struct TakeOperations;

impl OnSender for TakeOperations {
    type Output = Vec<RemoteOp>;

    fn on<F: FabricDiagnostics>(self, sender: &mut Client<F>) -> Vec<RemoteOp> {
        sender.take_operations()
    }
}

/// An operation that returns the names of the members of the destination groups that are not connected.
struct Absent<'a>(Casting<'a>);

impl OnSender for Absent<'_> {
    type Output = Vec<String>;

    fn on<F: FabricDiagnostics>(self, sender: &mut Client<F>) -> Vec<String> {
        absent(self.0.plan, sender, self.0.to)
    }
}

/// An operation that reports errors of the fabric, and members that the client has stopped waiting for.
struct Report<'a, 'b>(&'b mut Troubles, Casting<'a>, &'a str);

impl OnSender for Report<'_, '_> {
    type Output = ();

    fn on<F: FabricDiagnostics>(self, sender: &mut Client<F>) {
        let Report(troubles, Casting { plan, output, .. }, name) = self;
        let mut say = |text: &str| output.log(Level::Warn, name, text);
        troubles.report_expelled(sender.expelled(), |process| plan.name(process), &mut say);
        troubles.report(sender.fabric_mut(), say);
    }
}

/// The reason why a message is lost: it was not applied, or its outcome is unknown.
#[derive(Clone, Copy)]
enum Lost {
    NotApplied(Refused),
    Unknown(Why),
}

/// A client that sends lines and waits until they are applied.
struct Caster<'a> {
    casting: Casting<'a>,
    name: &'a str,
    cluster: Cluster,
    to: Groups,
    client: LocalClient,
    recording: Option<Recording>,
    sending: Sending<Request>,
    /// The reason why the first message was lost, and the number of sent messages that have ended although they are not
    /// known to be applied.
    lost: Option<(Lost, usize)>,
    latency: Latency,
    troubles: Troubles,
    messages: u64,
    bytes: u64,
    begin: Instant,
    /// Time at which the last message was sent or applied, or at which the command last waited for input alone.
    progress: Instant,
}

impl Caster<'_> {
    fn cast(&mut self, mut feed: Feed, interrupt: &Interrupt) -> Result<(), Failure> {
        let mut interrupted = false;
        loop {
            self.send(&mut feed)?;
            let turn = self.turn()?;
            self.record_operations();
            if let Some(failure) = self.unrecorded() {
                feed.end(Err(failure));
            }
            self.client.on_sender(Report(&mut self.troubles, self.casting, self.name));
            let settles = !self.sending.is_empty() && self.progress.elapsed() <= RESET;
            if let Some((lost, _)) = self.lost
                && (feed.next.is_some() || !settles)
            {
                return Err(self.lost(lost));
            }
            if interrupt.insists() {
                return Err(self.given_up(interrupt));
            }
            if interrupt.came() && !interrupted {
                interrupted = true;
                let what = format_args!("interrupted by {} after {} messages", interrupt.name(), self.messages);
                let remedy = "the lines that were not sent are still in the input";
                feed.end(Err(Failure::run(what, "standard input", remedy)));
                self.tell_what_is_awaited(interrupt);
            }
            if feed.next.is_none() && self.sending.is_empty() {
                if let Some(ended) = feed.ended {
                    return ended;
                }
                feed.wait(PATIENCE);
                self.progress = Instant::now();
            } else if self.progress.elapsed() > Duration::from_secs(self.casting.args.timeout) {
                return Err(self.stuck(feed.next.is_some()));
            } else if let Turn::Idle(until) = turn {
                self.sleep(until)?;
            }
        }
    }

    /// Sends lines until there is no room or no line.
    fn send(&mut self, feed: &mut Feed) -> Result<(), Failure> {
        while self.lost.is_none() {
            let Some(line) = feed.line() else { return Ok(()) };
            match self.client.submit(self.to.clone(), line) {
                Ok(request) => self.sending.sent(request, Instant::now()),
                Err(Refused::Busy(_) | Refused::Unavailable(_)) => return Ok(()),
                // The history cannot be written any more. The next check of the history reports why.
                Err(Refused::ClientEnded) if self.recording.is_some() => return Ok(()),
                Err(why) => {
                    self.lost = Some((Lost::NotApplied(why), 0));
                    return Ok(());
                }
            }
            self.messages += 1;
            self.bytes += line.len() as u64;
            feed.next = None;
            self.progress = Instant::now();
        }
        Ok(())
    }

    /// Handles the outcomes of messages.
    fn turn(&mut self) -> Result<Turn, Failure> {
        let Caster { client, sending, lost, latency, progress, .. } = self;
        let turn = client.turn(|request, outcome| {
            let now = Instant::now();
            let Some(since) = sending.ended(request) else { return };
            let why = match outcome {
                Outcome::NotApplied(why) => Lost::NotApplied(why),
                Outcome::Unknown(why) => Lost::Unknown(why),
                _ => {
                    latency.record(u64::try_from((now - since).as_nanos()).unwrap_or(u64::MAX));
                    *progress = now;
                    return;
                }
            };
            lost.get_or_insert((why, 0)).1 += 1;
        });
        turn.map_err(|error| match error.kind() {
            ClientErrorKind::Superseded => self.superseded(),
            _ => Failure::run(error.what(), "waiting", "report this as a bug"),
        })
    }

    /// Sleeps until a message may have arrived, but not longer than until `until`.
    fn sleep(&self, until: Instant) -> Result<(), Failure> {
        let longest = until.saturating_duration_since(Instant::now());
        let longest = longest.try_into().ok();
        match poll(&mut [PollFd::new(&self.client, PollFlags::IN)], longest.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(Failure::run(std::io::Error::from(error), "waiting", "report this as a bug")),
        }
    }

    fn record_operations(&mut self) {
        if let Some(recording) = self.recording.as_ref().filter(|_| self.casting.args.meeting.operations) {
            recording.operations(&self.client.on_sender(TakeOperations));
        }
    }

    /// Returns why nothing more is multicast, if the history has ended. Returns it only once.
    fn unrecorded(&self) -> Option<Failure> {
        let mut failure = self.recording.as_ref()?.take_failure()?;
        failure.what += &format!(
            "; {} multicast, no further line of the input is",
            counted(self.messages, "message was", "messages were")
        );
        Some(failure)
    }

    /// Returns the number of messages that are not known to be applied.
    fn left(&self) -> usize {
        self.sending.len() + self.lost.map_or(0, |(_, messages)| messages)
    }

    /// Ends the session if all messages are known to be applied, and flushes the history.
    fn close(mut self) -> Result<(), Failure> {
        if self.left() == 0 && self.lost.is_none() {
            // A session that is not ended here lives until it expires. Operations after this are not recorded.
            self.record_operations();
            let _ = self.client.close();
        }
        let Some(recording) = &self.recording else { return Ok(()) };
        recording.flush();
        recording.take_failure().map_or(Ok(()), Err)
    }

    fn superseded(&self) -> Failure {
        let (left, sent) = (self.left(), self.messages);
        let name = self.name;
        let what = format_args!(
            "another process has taken over client id `{name}`; {left} of {sent} messages are not known to be delivered"
        );
        let remedy = "see what was delivered before sending them again (`stentor leader show` names what is undelivered); give each process its own client id with --client";
        Failure::run(what, self.casting.args.meeting.config.display(), remedy)
    }

    /// Returns the failure of a cast that lost a message.
    fn lost(&self, lost: Lost) -> Failure {
        let (left, sent) = (self.left(), self.messages);
        let why = match lost {
            Lost::NotApplied(Refused::GroupReset(group)) | Lost::Unknown(Why::GroupReset(group)) => {
                return self.reset(self.cluster.group_name(group));
            }
            Lost::NotApplied(why) => why.to_string(),
            Lost::Unknown(why) => why.to_string(),
        };
        let what = format_args!("{left} of {sent} messages are not known to be delivered: {why}");
        let remedy =
            "see what was delivered before sending lines again; then start this client again for the remaining lines";
        Failure::run(what, self.casting.args.meeting.config.display(), remedy)
    }

    /// Returns the failure of a cast to a group that began anew and accepts nothing more from this process.
    fn reset(&self, group: &str) -> Failure {
        let (left, sent) = (self.left(), self.messages);
        let what = format_args!(
            "{group} began anew, from another state, and accepts nothing more from this process: {left} of {sent} messages are not known \
             to be delivered"
        );
        let remedy =
            "see what was delivered before sending them again; then start this client again for the remaining lines";
        Failure::run(what, self.casting.args.meeting.config.display(), remedy)
    }

    /// Reports that the command was asked to end and waits for outstanding messages.
    fn tell_what_is_awaited(&self, interrupt: &Interrupt) {
        let (left, sent) = (self.left(), self.messages);
        if left > 0 {
            let name = self.name;
            let text = format!(
                "{}: waits up to {} s for the delivery of {left} of {sent} messages; a second signal ends it at once",
                interrupt.name(),
                self.casting.args.timeout
            );
            self.casting.output.log(Level::Warn, name, &text);
        }
    }

    fn given_up(&self, interrupt: &Interrupt) -> Failure {
        let (left, sent) = (self.left(), self.messages);
        let what = format_args!(
            "interrupted twice, by {} last: {left} of {sent} messages are not known to be delivered",
            interrupt.name()
        );
        let remedy = "see what was delivered before sending them again (`stentor leader show` names what is undelivered); without a second signal they are waited for";
        Failure::run(what, self.casting.args.meeting.config.display(), remedy)
    }

    fn stuck(&mut self, is_next_unsent: bool) -> Failure {
        let (left, sent) = (self.left(), self.messages);
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
            what += " the groups accept no more: the next line was not sent";
        }
        let gone = self.client.on_sender(Absent(self.casting));
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
