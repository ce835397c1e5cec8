//! Raw operations on every provider in Debian's libfabric that works on one host.

#![allow(clippy::undocumented_unsafe_blocks, reason = "the pair owns memory and contexts and outlives its operations")]

mod common;

use common::{PROVIDERS, Pair};
use stentor_fabric_ofi::{
    Bare, ChooseError, Completes, Domain, Endpoint, Errno, Libfabric, Local, Needs, Wish, choose,
};

const MESSAGES: Needs = Needs { tagged: true, rma: false, atomics: false, ordered_writes: false };
const RMA: Needs = Needs { tagged: true, rma: true, atomics: false, ordered_writes: true };
const ATOMICS: Needs = Needs { tagged: false, rma: true, atomics: true, ordered_writes: false };

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn only_the_named_provider_is_used() {
    let library = Libfabric::load().expect("libfabric loads; otherwise: apt-get install libfabric1");
    let choose = |wish: Wish| choose(library, &wish, MESSAGES);
    let absent = choose(common::wish("no-such-provider")).unwrap_err();
    assert!(matches!(&absent, ChooseError::Absent { there, .. } if there.iter().any(|name| name == "tcp;ofi_rxm")));
    assert!(absent.to_string().contains("name one of those"), "{absent}");
    // libfabric adds a layer to the named provider. The result is another provider, which the error names.
    let layered = choose(common::wish("udp")).unwrap_err();
    assert!(matches!(&layered, ChooseError::Another { offered, .. } if offered == "udp;ofi_rxd"), "{layered}");
    let nowhere = Wish { address: Some("192.0.2.77".parse().unwrap()), ..common::wish("tcp;ofi_rxm") };
    let nowhere = Domain::open(library, choose(nowhere).unwrap()).unwrap();
    let failed = Endpoint::new(&nowhere, 16, false).unwrap_err();
    assert_eq!(failed.provider, "tcp;ofi_rxm", "no interface of this host has this address: {failed}");
    let device = Wish { device: Some("eth77".into()), ..common::wish("tcp;ofi_rxm") };
    let device = choose(device).unwrap_err();
    assert!(matches!(&device, ChooseError::Device { there, .. } if there == &["lo"]), "{device}");
    // If no provider is named, `shm` can be chosen only if all peers are on this host.
    let anything = |same_host| Wish { provider: None, same_host, ..common::wish("") };
    let local = choose(anything(true)).unwrap();
    assert!(["efa", "verbs;ofi_rxm", "shm"].contains(&local.provider()), "{local:?}");
    assert_ne!(choose(anything(false)).unwrap().provider(), "shm");
}

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn messages_arrive_in_the_order_sent() {
    for provider in PROVIDERS {
        let mut pair = Pair::new(provider, MESSAGES);
        for n in 0..8 {
            let (local, context) = (pair.local(1, 1024 * n as u64, 1024), pair.context(1, n));
            pair.post(|pair| unsafe { pair.sides[1].endpoint.receive(local, context) });
        }
        for n in 0..8 {
            pair.store(0, 128 * n, 100 + n as u64);
            let (local, context, to) = (pair.local(0, 1024 * n as u64, 8 + 100 * n), pair.context(0, n), pair.peers[0]);
            pair.post(|pair| unsafe { pair.sides[0].endpoint.send(local, to, context) });
        }
        for n in 0..8 {
            let received = pair.completes(1, n);
            assert_eq!((received.received, received.bytes), (true, 8 + 100 * n), "{provider}");
            assert_eq!(pair.word(1, 128 * n), 100 + n as u64, "{provider}");
            assert!(!pair.completes(0, n).received);
        }
    }
}

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn tags_match_by_mask_and_unexpected_messages_are_queued() {
    for provider in PROVIDERS {
        let mut pair = Pair::new(provider, MESSAGES);
        let to = pair.peers[0];
        for (n, tag) in [0x2_0000_0007, 0x1_0000_0007_u64].into_iter().enumerate() {
            pair.store(0, n, tag);
            let (local, context) = (pair.local(0, 8 * n as u64, 8), pair.context(0, n));
            pair.post(|pair| unsafe { pair.sides[0].endpoint.send_tagged(local, to, tag, context) });
        }
        pair.linger();
        // If a receive with a mask does not match earlier messages on this provider, check that the quirk is still
        // necessary.
        if pair.quirks().masks_miss_unexpected {
            let (local, context) = (pair.local(1, 0, 8), pair.context(1, 9));
            pair.post(|pair| unsafe { pair.sides[1].endpoint.receive_tagged(local, 1 << 32, 0xffff_ffff, context) });
            pair.linger();
            assert!(pair.sides[1].done.is_empty(), "{provider} matches earlier messages: remove the quirk");
            continue;
        }
        // Receive any message with a tag whose upper half is 1. The lower half is ignored.
        let (local, context) = (pair.local(1, 0, 8), pair.context(1, 0));
        pair.post(|pair| unsafe { pair.sides[1].endpoint.receive_tagged(local, 0x1_0000_0000, 0xffff_ffff, context) });
        let received = pair.completes(1, 0);
        assert_eq!((received.tag, received.bytes, pair.word(1, 0)), (0x1_0000_0007, 8, 0x1_0000_0007), "{provider}");
        // Receive the other message, which has exactly this tag.
        let (local, context) = (pair.local(1, 8, 64), pair.context(1, 1));
        pair.post(|pair| unsafe { pair.sides[1].endpoint.receive_tagged(local, 0x2_0000_0007, 0, context) });
        assert_eq!((pair.completes(1, 1).tag, pair.word(1, 1)), (0x2_0000_0007, 0x2_0000_0007), "{provider}");
    }
}

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn injected_messages_are_copied_at_once() {
    for provider in PROVIDERS {
        let mut pair = Pair::new(provider, MESSAGES);
        let to = pair.peers[0];
        let limit = pair.sides[0].endpoint.domain().info().inject_bytes();
        assert!(limit >= 8, "{provider}: {limit}");
        let (local, context) = (pair.local(1, 0, 64), pair.context(1, 0));
        pair.post(|pair| unsafe { pair.sides[1].endpoint.receive_tagged(local, 9, 0, context) });
        pair.post(|pair| pair.sides[0].endpoint.inject_tagged(&77_u64.to_ne_bytes(), to, 9));
        assert_eq!((pair.completes(1, 0).bytes, pair.word(1, 0)), (8, 77), "{provider}");
        let (local, context) = (pair.local(1, 64, 64), pair.context(1, 1));
        pair.post(|pair| unsafe { pair.sides[1].endpoint.receive(local, context) });
        pair.post(|pair| pair.sides[0].endpoint.inject(&78_u64.to_ne_bytes(), to));
        assert_eq!((pair.completes(1, 1).bytes, pair.word(1, 8)), (8, 78), "{provider}");
        let refused = pair.sides[0].endpoint.inject(&vec![0; limit + 1], to);
        assert_eq!(refused, Err(Errno::INVALID), "{provider}");
    }
}

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn cancelled_receive_completes_and_a_too_long_message_fails() {
    for provider in PROVIDERS {
        let mut pair = Pair::new(provider, MESSAGES);
        let (local, context, to) = (pair.local(1, 0, 64), pair.context(1, 0), pair.peers[0]);
        pair.post(|pair| unsafe { pair.sides[1].endpoint.receive_tagged(local, 5, 0, context) });
        unsafe { pair.sides[1].endpoint.cancel(context) }.unwrap();
        let failure = pair.completion(1, Some(0)).unwrap_err();
        assert_eq!(failure.errno, Errno::CANCELLED, "{provider}: {failure}");
        // The next receive for this tag matches the message.
        let (local, context) = (pair.local(1, 0, 8), pair.context(1, 1));
        pair.post(|pair| unsafe { pair.sides[1].endpoint.receive_tagged(local, 5, 0, context) });
        let (local, context) = (pair.local(0, 0, 24), pair.context(0, 1));
        pair.post(|pair| unsafe { pair.sides[0].endpoint.send_tagged(local, to, 5, context) });
        match pair.completion(1, Some(1)) {
            Err(failure) => assert_eq!(failure.errno, Errno::TRUNCATED, "{provider}: {failure}"),
            // `rxd` stores the part that fits and reports the length of that part.
            Ok(entry) => assert_eq!((provider, entry.bytes), ("udp;ofi_rxd", 8)),
        }
    }
}

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn writes_land_in_order_and_immediates_are_delivered() {
    for provider in PROVIDERS {
        let mut pair = Pair::new(provider, RMA);
        for n in 0..50_usize {
            pair.store(0, n, 1000 + n as u64);
            let (local, to, context) = (pair.local(0, 8 * n as u64, 8), pair.remote(0, 0), pair.context(0, n));
            let (immediate, completes) =
                if n == 49 { (Some(0xfeed), Completes::Delivered) } else { (None, Completes::Sent) };
            pair.post(|pair| unsafe { pair.sides[0].endpoint.write(local, to, immediate, completes, context) });
        }
        let told = pair.completion(1, None).unwrap();
        assert_eq!((told.immediate, told.received), (Some(0xfeed), false), "{provider}");
        assert_eq!(pair.word(1, 0), 1049, "{provider}");
        for n in 0..50 {
            pair.completes(0, n);
        }
    }
}

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn long_reads_return_the_peers_data() {
    for provider in PROVIDERS {
        let mut pair = Pair::new(provider, RMA);
        for word in 0..4096 {
            pair.store(1, word, word as u64 ^ 0x5555);
        }
        let (local, from, context) = (pair.local(0, 0, 32768), pair.remote(0, 0), pair.context(0, 0));
        pair.post(|pair| unsafe { pair.sides[0].endpoint.read(local, from, context) });
        pair.completes(0, 0);
        for word in 0..4096 {
            assert_eq!(pair.word(0, word), word as u64 ^ 0x5555, "{provider}");
        }
    }
}

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn atomics_return_the_old_value() {
    for provider in PROVIDERS {
        let mut pair = Pair::new(provider, ATOMICS);
        pair.store(1, 0, 40);
        let part = |pair: &Pair, word: u64| -> Local { pair.local(0, 8 * word, 8) };
        let (old, operand, new) = (part(&pair, 0), part(&pair, 1), part(&pair, 2));
        let (to, first, second) = (pair.remote(0, 0), pair.context(0, 0), pair.context(0, 1));
        pair.store(0, 1, 2);
        pair.post(|pair| unsafe { pair.sides[0].endpoint.fetch_add(old, operand, to, first) });
        pair.completes(0, 0);
        if pair.quirks().fetches_nothing {
            assert_eq!(
                (pair.word(0, 0), pair.word(1, 0)),
                (0, 42),
                "{provider} returns the old value: remove the quirk"
            );
            continue;
        }
        assert_eq!((pair.word(0, 0), pair.word(1, 0)), (40, 42), "{provider}");
        pair.store(0, 1, 42);
        pair.store(0, 2, 9);
        pair.post(|pair| unsafe { pair.sides[0].endpoint.compare_swap(old, [new, operand], to, second) });
        pair.completes(0, 1);
        assert_eq!((pair.word(0, 0), pair.word(1, 0)), (42, 9), "{provider}");
    }
}

/// `shm` maps endpoints of one process into each other directly. Here a neighbour has inserted the address of the
/// closed endpoint, but not the other way round. Closing the endpoint must not remove memory that the neighbour still
/// uses.
#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn endpoint_closed_before_it_knows_its_peer_harms_no_neighbour() {
    for provider in PROVIDERS {
        eprintln!("on {provider}");
        let open =
            || Bare::open(provider, ("127.0.0.1".parse().unwrap(), 0), 4, 64).unwrap_or_else(|error| panic!("{error}"));
        let (mut stays, goes) = (open(), open());
        stays.know(&goes.address().unwrap()).unwrap();
        drop(goes);
        for round in 0..64 {
            // The send to the closed endpoint may succeed or fail.
            let _ = stays.send(round % 4, 64);
            let _ = stays.progress();
        }
    }
}
