//! A group of one runs the same code: view raised and persisted, own operation appended, held,
//! committed; then it serves. A restart replays what is held and goes on.

use borzoi_consensus::{
    Effect, Event, LogRecords, Options, Prepare, PrepareKind, Refusal, Replica, Role, Settled,
    Timeouts, ViewState, settle,
};
use borzoi_types::{Body, ClusterId, LogId, Micros, Mono, Op, ReplicaId, View, limits};
use std::sync::Arc;

fn options() -> Options {
    Options {
        cluster: ClusterId(7),
        log: LogId(1),
        replica: ReplicaId(0),
        replica_count: 1,
        preferred_primary: ReplicaId(0),
        timeouts: Timeouts::standard(),
        accept_loss: false,
    }
}

/// A journal that completes everything at once.
#[derive(Default)]
struct Disk {
    views: Vec<ViewState>,
    prepares: Vec<Arc<Prepare>>,
    committed: Vec<Op>,
    roles: Vec<Role>,
}

impl Disk {
    fn settled(&self) -> Settled {
        let records = LogRecords {
            cluster: ClusterId(7),
            log: LogId(1),
            replica_count: 1,
            view_states: self.views.clone(),
            prepares: self.prepares.clone(),
            damaged: Vec::new(),
        };
        settle(records, None, true).expect("an intact journal settles")
    }

    fn run(&mut self, replica: &mut Replica, mut effects: Vec<Effect>) {
        while !effects.is_empty() {
            let mut next = Vec::new();
            for effect in effects {
                self.execute(replica, effect, &mut next);
            }
            effects = next;
        }
    }

    fn execute(&mut self, replica: &mut Replica, effect: Effect, next: &mut Vec<Effect>) {
        match effect {
            Effect::Append(prepare) => {
                let (op, checksum) = (prepare.header.op, prepare.header.checksum);
                self.prepares.push(prepare);
                replica.handle(Mono(0), Event::Held { op, checksum }, next);
            }
            Effect::PersistViewState(state) => {
                let (view, log_view) = (state.view, state.log_view);
                self.views.push(state);
                replica.handle(Mono(0), Event::ViewStateDurable { view, log_view }, next);
            }
            Effect::Commit(prepare) => self.committed.push(prepare.header.op),
            Effect::RoleChanged(role) => self.roles.push(role),
            other => panic!("a solo replica wants nothing else: {other:?}"),
        }
    }
}

#[test]
fn a_solo_replica_starts_serves_and_restarts() {
    let mut disk = Disk::default();
    let mut effects = Vec::new();
    let mut replica = Replica::start(options(), disk.settled(), Mono(0), 1, &mut effects);
    assert!(matches!(&effects[0], Effect::PersistViewState(state) if state.view == View(1)));
    assert_eq!(replica.can_propose(1), Err(Refusal::NotPrimary { primary: None }));
    disk.run(&mut replica, effects);
    assert!(replica.is_serving_primary());
    assert_eq!(disk.prepares[0].header.kind, PrepareKind::ViewStart);
    assert_eq!(disk.roles.last(), Some(&Role::Primary { view: View(1), may_serve: true }));
    assert_eq!(replica.deadline(), None, "an idle solo replica wants no tick");
    for op in 2..200u64 {
        let mut effects = Vec::new();
        let body = Body::from(vec![op as u8; op as usize]);
        let proposed = replica.propose(Mono(0), Micros(op), body, &mut effects);
        assert_eq!(proposed, Ok(Op(op)));
        disk.run(&mut replica, effects);
        assert_eq!(replica.commit(), Op(op));
    }
    disk.committed.clear();
    let mut effects = Vec::new();
    let mut replica = Replica::start(options(), disk.settled(), Mono(0), 2, &mut effects);
    disk.run(&mut replica, effects);
    assert_eq!(replica.view(), View(2));
    assert_eq!(disk.committed, (1..=200).map(Op).collect::<Vec<_>>(), "each once, in order");
    assert!(replica.is_serving_primary());
}

#[test]
fn a_solo_replica_refuses_what_exceeds_its_pipeline() {
    let mut disk = Disk::default();
    let mut effects = Vec::new();
    let mut replica = Replica::start(options(), disk.settled(), Mono(0), 1, &mut effects);
    disk.run(&mut replica, effects);
    let mut effects = Vec::new();
    let mut accepted = 0;
    while replica.propose(Mono(0), Micros(0), Body::empty(), &mut effects).is_ok() {
        accepted += 1;
    }
    assert_eq!(accepted, limits::PIPELINE_OPS_MAX);
    assert_eq!(replica.can_propose(0), Err(Refusal::PipelineFull));
    disk.run(&mut replica, effects);
    assert_eq!(replica.can_propose(0), Ok(()));
}
