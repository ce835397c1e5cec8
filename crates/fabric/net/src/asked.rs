//! Programs that query this process, after they have proved that they have the key; see [`ask`](crate::ask).

use std::collections::VecDeque;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::ask::{MAX_QUESTION, parts};
use crate::frame_stream::FrameStream;
use crate::hello::Session;

/// Maximum number of connections at a time. A further one replaces the oldest.
const MOST: usize = 32;
/// Maximum duration of a connection of a querying program.
const LONGEST: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Asker {
    id: u64,
    frames: FrameStream,
    session: Session,
    since: Instant,
    /// `true` once the question has arrived. There is one question per connection.
    has_asked: bool,
}

/// All connections of querying programs.
#[derive(Debug, Default)]
pub(crate) struct Askers {
    all: Vec<Asker>,
    begun: u64,
    questions: VecDeque<(u64, Vec<u8>)>,
}

impl Askers {
    /// Adds an authenticated connection.
    pub(crate) fn admit(&mut self, frames: FrameStream, session: Session) {
        if self.all.len() == MOST {
            self.all.remove(0);
        }
        self.begun += 1;
        self.all.push(Asker { id: self.begun, frames, session, since: Instant::now(), has_asked: false });
    }

    pub(crate) fn sockets(&self) -> impl Iterator<Item = &TcpStream> {
        self.all.iter().map(|asker| &asker.frames.socket)
    }

    /// Receives questions and sends pending bytes.
    pub(crate) fn pump(&mut self) {
        for asker in &mut self.all {
            asker.frames.drain();
            let Some(frame) = asker.frames.receive() else { continue };
            match asker.session.take(&frame).filter(|_| !asker.has_asked) {
                Some(question) if question.len() <= MAX_QUESTION => {
                    asker.has_asked = true;
                    self.questions.push_back((asker.id, question.to_vec()));
                }
                // The frame is forged or too long, or there was a question before: close the connection.
                _ => asker.frames.dead = true,
            }
        }
        self.all.retain(|asker| !asker.frames.dead && asker.since.elapsed() < LONGEST);
        self.questions.retain(|(id, _)| self.all.iter().any(|asker| asker.id == *id));
    }

    pub(crate) fn next(&mut self) -> Option<(u64, Vec<u8>)> {
        self.questions.pop_front()
    }

    /// Sends an answer. Does nothing if the connection is closed.
    pub(crate) fn answer(&mut self, id: u64, answer: &[u8]) {
        let Some(asker) = self.all.iter_mut().find(|asker| asker.id == id) else { return };
        for part in parts(answer) {
            asker.session.send(&mut asker.frames, &part);
        }
    }
}
