//! A start-view from before a crash may name a head below what the replica acknowledged and lost.
//! Only an answer that echoes this life's nonce, or a view that began later, sets a goal to learn.

use borzoi_consensus::{
    Anchor, Effect, Event, LogSuffix, Message, Options, Replica, Settled, StartView, Timeouts,
};
use borzoi_types::{ClusterId, LogId, Mono, Op, ReplicaId, View};

const CLUSTER: ClusterId = ClusterId(7);
const LOG: LogId = LogId(1);

/// Backup 0 of primary 1, untrusted, in view 1 with the log of view 1.
fn untrusted_backup(effects: &mut Vec<Effect>) -> Replica {
    let options = Options {
        cluster: CLUSTER,
        log: LOG,
        replica: ReplicaId(0),
        replica_count: 3,
        preferred_primary: ReplicaId(0),
        timeouts: Timeouts::standard(),
        accept_loss: false,
    };
    let mut settled = Settled::joining(CLUSTER, LOG, View(1), true);
    settled.view_state.log_view = View(1);
    Replica::start(options, settled, Mono(0), 42, effects)
}

fn start_view(view: u32, nonce: u64) -> Event {
    let head = Anchor::root(CLUSTER, LOG);
    let message = Message::StartView(Box::new(StartView {
        view: View(view),
        nonce,
        commit: Op::ZERO,
        released: Op::ZERO,
        suffix: LogSuffix::committed(head),
    }));
    let primary = ReplicaId(u8::try_from(view % 3).expect("below three"));
    Event::Message { from: primary, message }
}

fn asked_nonce(effects: &[Effect]) -> u64 {
    let mut nonces = effects.iter().filter_map(|effect| match effect {
        Effect::Send { message: Message::RequestStartView { nonce, .. }, .. } => Some(*nonce),
        _ => None,
    });
    nonces.next_back().expect("an untrusted backup asks its primary")
}

#[test]
fn an_old_answer_teaches_an_untrusted_replica_nothing() {
    let mut effects = Vec::new();
    let mut replica = untrusted_backup(&mut effects);
    let nonce = asked_nonce(&effects);
    replica.handle(Mono(1), start_view(1, 0), &mut effects);
    replica.handle(Mono(1), start_view(1, nonce ^ 2), &mut effects);
    assert!(replica.must_learn(), "nobody asked for these");
    replica.handle(Mono(1), start_view(1, nonce), &mut effects);
    assert!(!replica.must_learn(), "this one was asked for, and all of it is held");
}

#[test]
fn a_view_that_began_later_needs_no_nonce() {
    let mut effects = Vec::new();
    let mut replica = untrusted_backup(&mut effects);
    replica.handle(Mono(1), start_view(2, 0), &mut effects);
    assert!(replica.must_learn(), "the record of the new view is not durable yet");
    let (view, log_view) = (View(2), View(2));
    replica.handle(Mono(2), Event::ViewStateDurable { view, log_view }, &mut effects);
    assert!(!replica.must_learn());
}

#[test]
fn only_the_primary_teaches() {
    let mut effects = Vec::new();
    let mut replica = untrusted_backup(&mut effects);
    let nonce = asked_nonce(&effects);
    let Event::Message { message, .. } = start_view(1, nonce) else { panic!("a message") };
    let from = ReplicaId(2);
    replica.handle(Mono(1), Event::Message { from, message }, &mut effects);
    assert!(replica.must_learn(), "a backup may be behind its primary");
}
