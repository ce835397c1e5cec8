//! Creation of queue pairs and their transitions between states.

use stentor_fabric::{QpConfig, QpId, Status};

use super::Endpoint;
use super::attributes::{Path, Sending, State, TransitionError, Unanswered};
use super::memory::ProtectionDomain;
use super::qp::Qp;
use super::requester::Requester;
use super::responder::Responder;

impl Endpoint {
    /// Creates a queue pair with a unique number (24 bits) in [`State::Reset`]. Returns `None` if the number is in use.
    pub fn create(&mut self, number: u32, domain: ProtectionDomain, config: QpConfig) -> Option<QpId> {
        let number = number & 0xff_ffff;
        let Err(place) = self.numbers.binary_search_by_key(&number, |(number, _)| *number) else { return None };
        let id = QpId(self.qps.len() as u32);
        self.numbers.insert(place, (number, id.0));
        self.qps.push(Qp::new(id, number, domain, config));
        Some(id)
    }

    /// Changes the number of a queue pair in [`State::Reset`], so that late packets of its former life do not reach it.
    /// Returns `false` if the number is in use, or if the queue pair does not exist or is not in that state.
    pub fn renumber(&mut self, id: QpId, number: u32) -> bool {
        let number = number & 0xff_ffff;
        let Some(qp) = self.qps.get_mut(id.index()) else { return false };
        if qp.state != State::Reset || self.numbers.iter().any(|(taken, _)| *taken == number) {
            return false;
        }
        qp.number = number;
        self.numbers.retain(|(_, index)| *index != id.0);
        let place = self.numbers.partition_point(|(other, _)| *other < number);
        self.numbers.insert(place, (number, id.0));
        true
    }

    /// Returns the state of a queue pair, or `None` if it does not exist.
    #[must_use]
    pub fn state(&self, id: QpId) -> Option<State> {
        Some(self.qps.get(id.index())?.state)
    }

    /// Returns the number of a queue pair.
    #[must_use]
    pub fn number(&self, id: QpId) -> Option<u32> {
        Some(self.qps.get(id.index())?.number)
    }

    /// Returns the parameters of a queue pair.
    #[must_use]
    pub fn config(&self, id: QpId) -> Option<QpConfig> {
        Some(self.qps.get(id.index())?.config)
    }

    fn qp_mut(&mut self, id: QpId) -> Result<&mut Qp, TransitionError> {
        self.qps.get_mut(id.index()).ok_or(TransitionError::UnknownQp(id))
    }

    /// Reset → Init: receives may be posted.
    ///
    /// # Errors
    /// Returns a [`TransitionError`].
    pub fn init(&mut self, id: QpId) -> Result<(), TransitionError> {
        let qp = self.qp_mut(id)?;
        qp.moves(State::Init, State::Reset)?;
        qp.state = State::Init;
        Ok(())
    }

    /// Init → ReadyToReceive: sets the path to the peer, and accepts the peer's requests.
    ///
    /// # Errors
    /// Returns a [`TransitionError`].
    pub fn ready_to_receive(&mut self, id: QpId, path: Path) -> Result<(), TransitionError> {
        let qp = self.qp_mut(id)?;
        qp.moves(State::ReadyToReceive, State::Init)?;
        path.check()?;
        qp.responder.start(&path);
        (qp.path, qp.state) = (Some(path), State::ReadyToReceive);
        Ok(())
    }

    /// ReadyToReceive → ReadyToSend: sets the parameters of the requester, and permits work requests.
    ///
    /// # Errors
    /// Returns a [`TransitionError`].
    pub fn ready_to_send(&mut self, id: QpId, sending: Sending) -> Result<(), TransitionError> {
        let qp = self.qp_mut(id)?;
        qp.moves(State::ReadyToSend, State::ReadyToReceive)?;
        sending.check()?;
        qp.requester.start(sending);
        qp.state = State::ReadyToSend;
        Ok(())
    }

    /// Any state → Error: the oldest request completes with `first`, and other outstanding work is flushed.
    /// [`next_broken`](Endpoint::next_broken) does not report the queue pair.
    ///
    /// # Errors
    /// Returns [`TransitionError::UnknownQp`] if the queue pair does not exist.
    pub fn break_qp(&mut self, id: QpId, first: Status) -> Result<(), TransitionError> {
        self.qp_mut(id)?;
        let told = self.broken.len();
        self.fail(id.index(), first);
        self.broken.truncate(told);
        Ok(())
    }

    /// Returns the request that was unanswered when a queue pair broke ([`Unanswered`]), if there was one.
    #[must_use]
    pub fn unanswered(&self, id: QpId) -> Option<Unanswered> {
        let qp = self.qps.get(id.index())?;
        let (path, (bytes, longest)) = qp.path.zip(qp.requester.unanswered)?;
        Some(Unanswered { path, bytes, longest })
    }

    /// Any state → Reset: empties the queues without completions. Completions that were not polled yet remain, but do
    /// not count towards the queue depth any more.
    ///
    /// # Errors
    /// Returns [`TransitionError::UnknownQp`] if the queue pair does not exist.
    pub fn reset(&mut self, id: QpId) -> Result<(), TransitionError> {
        let qp = self.qp_mut(id)?;
        (qp.state, qp.path, qp.notified_at) = (State::Reset, None, None);
        qp.requester = Requester::new(id, qp.config);
        qp.responder = Responder::new(id, qp.config);
        self.completions.forget_places(id);
        Ok(())
    }
}
