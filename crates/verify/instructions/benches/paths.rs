//! Counts the instructions of each path for 200 and for 1200 messages. `cargo xtask nightly --only instructions`
//! installs the runner that this benchmark needs, runs the benchmark, and computes the instructions per message from
//! the difference of the two counts. The ids `n200` and `n1200` inform `cargo xtask` of the numbers of messages.
#![allow(missing_docs)]

use gungraun::prelude::*;
use gungraun::{Callgrind, EntryPoint};
use stentor_instructions::channel::{self, Ends};
use stentor_instructions::client::{Called, Turned};
use stentor_instructions::multicast::{self, Cluster};
use stentor_instructions::neb::{self, Set};
use stentor_instructions::shm::{self, Pair};
use stentor_instructions::switch::Bed;
use stentor_instructions::wire::{self, Place};

/// Counts a path for two numbers of messages. Setup and warm-up are outside of the counted sections.
macro_rules! path {
    ($name:ident, $ready:expr, |$bed:ident, $messages:ident| $run:expr) => {
        #[library_benchmark]
        #[bench::n200(200)]
        #[bench::n1200(1200)]
        fn $name($messages: u64) {
            let mut $bed = $ready;
            $run;
        }
    };
}

path!(shm_post, Pair::ready(), |bed, n| bed.run(shm::Role::Post, n));
path!(shm_poll, Pair::ready(), |bed, n| bed.run(shm::Role::Poll, n));
path!(shm_poll_nothing, Pair::ready(), |bed, n| bed.run(shm::Role::PollNothing, n));
path!(multicast_1_client, Cluster::ready(1), |bed, n| bed.run(multicast::Role::Client, n));
path!(multicast_1_leader, Cluster::ready(1), |bed, n| bed.run(multicast::Role::Leader, n));
path!(multicast_1_follower, Cluster::ready(1), |bed, n| bed.run(multicast::Role::Follower, n));
path!(multicast_2_client, Cluster::ready(2), |bed, n| bed.run(multicast::Role::Client, n));
path!(multicast_2_leader, Cluster::ready(2), |bed, n| bed.run(multicast::Role::Leader, n));
path!(multicast_2_follower, Cluster::ready(2), |bed, n| bed.run(multicast::Role::Follower, n));
path!(client_protocol, Turned::protocol(), |bed, n| bed.run(n));
path!(client_by_hand, Turned::by_hand(), |bed, n| bed.run(n));
path!(client_local, Turned::local(), |bed, n| bed.run(n));
path!(client_call, Called::ready(), |bed, n| bed.run(n));
path!(neb_sender, Set::ready(), |bed, n| bed.run(neb::Role::Sender, n));
path!(neb_receiver, Set::ready(), |bed, n| bed.run(neb::Role::Receiver, n));
path!(channel_writer, Ends::ready(), |bed, n| bed.run(channel::Role::Writer, n));
path!(channel_reader, Ends::ready(), |bed, n| bed.run(channel::Role::Reader, n));
path!(wire_encode, Place::ready(), |bed, n| bed.run(wire::Role::Encode, n));
path!(wire_decode, Place::ready(), |bed, n| bed.run(wire::Role::Decode, n));
path!(switch_1_receiver, Bed::ready(1), |bed, n| bed.run(n));
path!(switch_3_receivers, Bed::ready(3), |bed, n| bed.run(n));

library_benchmark_group!(
    name = paths,
    benchmarks = [
        shm_post,
        shm_poll,
        shm_poll_nothing,
        multicast_1_client,
        multicast_1_leader,
        multicast_1_follower,
        multicast_2_client,
        multicast_2_leader,
        multicast_2_follower,
        client_protocol,
        client_by_hand,
        client_local,
        client_call,
        neb_sender,
        neb_receiver,
        channel_writer,
        channel_reader,
        wire_encode,
        wire_decode,
        switch_1_receiver,
        switch_3_receivers,
    ]
);

main!(
    config = LibraryBenchmarkConfig::default()
        .tool(Callgrind::default().entry_point(EntryPoint::Custom("*counted_section*".to_owned()))),
    library_benchmark_groups = paths
);
