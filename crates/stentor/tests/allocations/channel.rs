//! After warm-up, a channel allocates nothing for a message, neither in an event loop nor with futures.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use stentor::{Channel, Received, Turn};
use stentor_testutil::TempDir;

const MESSAGES: u32 = 10_000;

/// Both ends of a channel, in one thread.
struct Both {
    from: Channel,
    to: Channel,
    message: Vec<u8>,
}

impl Both {
    fn send_and_receive(&mut self, messages: u32, length: usize) {
        let (data, mut sent, mut read) = ([7; 6000], 0, 0);
        while read < messages {
            sent += u32::from(sent < messages && self.from.try_send(&data[..length]).unwrap());
            while self.to.try_recv(&mut self.message).unwrap() == Received::Message {
                read += 1;
            }
            let _ = self.from.turn().unwrap();
        }
    }

    fn await_messages(&mut self, messages: u32) {
        let (data, mut context) = ([7; 64], Context::from_waker(Waker::noop()));
        for _ in 0..messages {
            let mut sending = pin!(self.from.send(&data));
            while sending.as_mut().poll(&mut context).is_pending() {}
            let mut receiving = pin!(self.to.recv(&mut self.message));
            let received = loop {
                if let Poll::Ready(received) = receiving.as_mut().poll(&mut context) {
                    break received;
                }
            };
            assert!(received.unwrap());
        }
    }
}

#[test]
fn ten_thousand_messages_allocate_nothing() {
    let directory = TempDir::new();
    let ends = [Channel::listen("here"), Channel::connect("here")];
    let [from, to] = ends.map(|end| end.directory(&directory).start().expect("the end of the channel starts"));
    let mut both = Both { from, to, message: Vec::new() };
    // Warm-up: buffers grow, and the connection is established.
    both.send_and_receive(2000, 6000);
    both.await_messages(2000);
    for length in [0, 64, 4096, 6000] {
        let counted = allocation_counter::measure(|| both.send_and_receive(MESSAGES, length));
        assert_eq!(counted.count_total, 0, "{length} bytes: {counted:?}");
    }
    let counted = allocation_counter::measure(|| both.await_messages(MESSAGES));
    assert_eq!(counted.count_total, 0, "futures: {counted:?}");
    while both.to.turn().unwrap() == Turn::Busy {}
    let counted = allocation_counter::measure(|| {
        for _ in 0..1000 {
            assert_eq!(both.to.try_recv(&mut both.message).unwrap(), Received::Nothing);
            let _ = both.to.turn().unwrap();
        }
    });
    assert_eq!(counted.count_total, 0, "nothing to do: {counted:?}");
}
