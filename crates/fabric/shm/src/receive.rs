//! Receiving: messages in the queues complete posted receives.

use stentor_fabric::memory::{Ordering, fence};
use stentor_fabric::{Completion, Opcode, QpId, QpState, Status};

use crate::copy::receive_word;
use crate::data::Data;
use crate::local::span_words;
use crate::queue::{Garbled, RecordKind};

impl Data {
    /// Receives the messages of peers that may have sent some since the last call, as far as receives are posted.
    #[inline]
    pub(crate) fn receive(&mut self) {
        let heard = self.take_heard();
        if heard.is_nothing() {
            return;
        }
        for position in 0..self.receivers.len() {
            let index = self.receivers[position] as usize;
            while heard.is_from(self.qps[index].peer) && self.receive_one(index) {}
        }
    }

    fn receive_one(&mut self, index: usize) -> bool {
        let qp = &mut self.qps[index];
        let Some((consumer, memory)) = &mut qp.inbound else { return false };
        let header = match consumer.peek(memory.words()) {
            Ok(Some(header)) => header,
            Ok(None) => return false,
            Err(Garbled) => {
                self.fail(index, Status::Flushed);
                return false;
            }
        };
        // A correct peer sends nothing without a receive. A message of an incorrect one waits for a receive.
        let Some(receive) = qp.receives.front().copied() else { return false };
        let imm = (header.kind != RecordKind::Send).then_some(header.imm);
        let opcode = if header.kind == RecordKind::WriteImm { Opcode::RecvWriteImm } else { Opcode::Recv };
        let blank = Completion::new(QpId(index as u32), receive.id, opcode, Status::Success);
        let mut completion = Completion { bytes: header.bytes, imm, ..blank };
        if header.kind == RecordKind::TooLong
            || header.kind != RecordKind::WriteImm && header.bytes > receive.span.bytes
        {
            (completion.status, completion.bytes, completion.imm) = (Status::LocalLength, 0, None);
            qp.receives.pop_front();
            self.complete_receive(completion);
            self.fail(index, Status::Flushed);
            return false;
        }
        qp.receives.pop_front();
        let to = span_words(&self.regions, receive.span).unwrap_or_default();
        let bytes = header.bytes as usize;
        consumer.take(memory.words(), header, |word, value| receive_word(to, bytes, word, value));
        self.complete_receive(completion);
        true
    }

    /// Breaks a queue pair, after completing the requests that are done.
    #[cold]
    pub(crate) fn fail(&mut self, index: usize, first: Status) {
        if self.qps[index].state == QpState::Ready {
            fence(Ordering::SeqCst);
            self.settle(index);
        }
        self.break_qp(index, first);
    }
}
