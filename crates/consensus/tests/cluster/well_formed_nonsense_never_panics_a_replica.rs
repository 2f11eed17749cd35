//! Frames that decode and mean nothing: from an impostor, of another cluster, replayed from last
//! week, with numbers out of range. They are dropped or harmless; the replica never panics, and a
//! group that is shouted at goes on serving once the shouting ends.

use crate::harness::disk::{CLUSTER, LOG};
use crate::harness::random::Random;
use crate::harness::{Config, World};
use borzoi_consensus::{
    Anchor, DoViewChange, Event, Evidence, LogSuffix, Message, Prepare, PrepareHeader, PrepareKind,
    StartView,
};
use borzoi_types::{Body, ClusterId, Micros, Mono, Op, ReplicaId, View, checksum};
use bytes::Bytes;
use std::sync::Arc;

fn number(random: &mut Random) -> u64 {
    match random.below(10) {
        0 => u64::MAX,
        1 => 1 << 40,
        _ => random.below(400),
    }
}

fn view(random: &mut Random) -> View {
    match random.below(12) {
        0 => View(u32::MAX),
        _ => View(random.below(6) as u32),
    }
}

fn anchor(random: &mut Random, world: &World) -> Anchor {
    let op = Op(number(random));
    let own = world.replica(0).checksum_at(op);
    let checksum = if random.chance(70) { own.unwrap_or(3) } else { 3 };
    Anchor { op, checksum }
}

fn header(random: &mut Random, below: Anchor) -> PrepareHeader {
    let op = Op(below.op.get().min(1 << 50) + 1);
    let commit = if random.chance(70) { random.below(400) } else { number(random) };
    PrepareHeader {
        checksum: 0,
        body_checksum: checksum::xxh3_128(b""),
        parent: below.checksum,
        cluster: if random.chance(95) { CLUSTER } else { ClusterId(1) },
        log: LOG,
        view: View(random.below(6) as u32),
        op,
        commit: Op(commit.min(op.get() - 1)),
        timestamp: Micros(number(random)),
        kind: PrepareKind::Normal,
        body_len: 0,
        config_epoch: 0,
    }
    .sealed()
}

fn suffix(random: &mut Random, world: &World) -> LogSuffix {
    let mut head = anchor(random, world);
    let mut headers = Vec::new();
    for _ in 0..random.below(5) {
        let next = header(random, head);
        if !next.follows(head) {
            break;
        }
        head = next.anchor();
        headers.push(next);
    }
    let evidence = headers.iter().map(|_| *random.pick(&[Evidence::Clean, Evidence::Held]));
    let evidence = evidence.collect();
    LogSuffix { head, headers, evidence }
}

fn prepare(random: &mut Random, world: &World) -> Arc<Prepare> {
    let below = anchor(random, world);
    Arc::new(Prepare { header: header(random, below), body: Body::empty() })
}

fn message(random: &mut Random, world: &World) -> Message {
    match random.below(12) {
        0 => Message::Prepare {
            view: view(random),
            commit: Op(number(random)),
            round: number(random),
            prepare: prepare(random, world),
        },
        1 => Message::PrepareOk {
            view: view(random),
            held: anchor(random, world),
            commit: Op(number(random)),
            round: number(random),
        },
        2 => Message::Commit {
            view: view(random),
            commit: anchor(random, world),
            head: Op(number(random)),
            round: number(random),
        },
        3 => Message::StartViewChange { view: view(random), target: view(random) },
        4 => {
            let suffix = suffix(random, world);
            let commit = suffix.below().op.max(Op(number(random)));
            let (view, log_view) = (view(random), view(random));
            Message::DoViewChange(Box::new(DoViewChange {
                view: view.max(log_view),
                log_view,
                commit,
                released: Op(number(random)),
                suffix,
                must_learn: random.chance(30),
                attachment: Bytes::new(),
            }))
        }
        5 => {
            let suffix = suffix(random, world);
            let commit = suffix.below().op.max(Op(number(random)));
            Message::StartView(Box::new(StartView {
                view: view(random),
                nonce: number(random),
                commit,
                released: Op(number(random)),
                suffix,
            }))
        }
        6 => Message::RequestStartView { view: view(random), nonce: number(random) },
        7 => Message::RequestHeaders { top: anchor(random, world), low: Op(number(random)) },
        8 => Message::Headers { headers: suffix(random, world).headers },
        9 => Message::RequestPrepares { wanted: vec![anchor(random, world)] },
        10 => Message::RepairPrepare { prepare: prepare(random, world) },
        _ => Message::Released { through: Op(number(random)) },
    }
}

fn shout(seed: u64, n: u8, messages: usize) -> u64 {
    let mut world = World::new(seed, Config::calm(n));
    world.run_ms_until(2_000, |world| world.serving().is_some());
    for _ in 0..100 {
        world.propose();
        world.run_ms(1);
    }
    let mut random = Random::new(seed);
    let mut effects = Vec::new();
    let mut rejected = 0;
    for _ in 0..messages {
        let message = message(&mut random, &world);
        let from = ReplicaId(random.below(u64::from(n) + 1) as u8);
        // What does not survive its codec never reaches a replica.
        let Ok(message) = Message::decode(&message.encode().to_bytes()) else {
            rejected += 1;
            continue;
        };
        let now = Mono(world.now);
        let target = random.below(u64::from(n)) as usize;
        let replica = world.nodes[target].replica.as_mut().expect("up");
        replica.handle(now, Event::Message { from, message }, &mut effects);
        replica.handle(now, Event::Tick, &mut effects);
        effects.clear();
        rejected += 1;
    }
    rejected
}

#[test]
fn well_formed_nonsense_never_panics_a_replica() {
    let mut handled = 0;
    for seed in 0..300 {
        handled += shout(seed, *Random::new(seed).pick(&[1, 3, 3, 5]), 200);
    }
    assert!(handled > 10_000);
}
