//! Consumer groups: members, who owns which partition, hand-overs (behaviour, section 15.2 and
//! 15.3; architecture, section 11).
//!
//! Invariants:
//! - a partition has at most one owner at any time, and exactly one while there are members;
//! - a hand-over names a partition with an owner and a member other than that owner;
//! - the generation rises with every change of members, owners or hand-overs;
//! - once hand-overs have ended, two members differ by at most one partition.

use crate::codec::{Codec, DecodeError, Input, codec_struct};
use crate::identity::{GroupKey, MemberSlot};
use crate::streams::lowest_free;
use borzoi_types::planted::{self, Bug};
use borzoi_types::{ClientId, GroupId, Micros, Op, PartitionId};
use borzoi_wire::Name;
use std::collections::{BTreeMap, BTreeSet};

/// A partition on its way from its owner to another member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handover {
    /// The member that gets it.
    pub to: MemberSlot,
    /// The operation that started it: its identity. Kept when the target changes, since what the
    /// old owner has drained stays drained.
    pub started: Op,
    /// When it started.
    pub since: Micros,
}

codec_struct!(Handover { to, started, since });

/// What a client may do with a partition as a member of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ownership {
    /// Poll and commit.
    Owner,
    /// Commit what it has polled, not poll more: the partition is being handed over.
    HandingOver,
    /// Nothing: another member owns it, or there is no such partition.
    NotOwner,
    /// Nothing: the client is no member.
    NotMember,
}

/// A consumer group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Its never-reused identity.
    pub key: GroupKey,
    /// Its visible number within the topic, never reused there.
    pub id: GroupId,
    /// Its name.
    pub name: Name,
    /// Rises with every change.
    pub generation: u64,
    /// The clients that are members, by place.
    members: BTreeMap<MemberSlot, ClientId>,
    /// Their places by client.
    slots: BTreeMap<ClientId, MemberSlot>,
    /// The owner of each partition, by partition number.
    owners: Vec<Option<MemberSlot>>,
    /// Partitions on their way to another member.
    handovers: BTreeMap<PartitionId, Handover>,
}

fn index(partition: PartitionId) -> usize {
    usize::try_from(partition.0).expect("a usize holds a u32")
}

fn partition(index: usize) -> PartitionId {
    PartitionId(u32::try_from(index).expect("limited to PARTITIONS_PER_TOPIC_MAX"))
}

impl Group {
    /// A group without members.
    #[must_use]
    pub fn new(key: GroupKey, id: GroupId, name: Name, partitions: usize) -> Self {
        Self {
            key,
            id,
            name,
            generation: 0,
            members: BTreeMap::new(),
            slots: BTreeMap::new(),
            owners: vec![None; partitions],
            handovers: BTreeMap::new(),
        }
    }

    /// The members in the order of their places.
    pub fn members(&self) -> impl ExactSizeIterator<Item = (MemberSlot, ClientId)> + '_ {
        self.members.iter().map(|(slot, client)| (*slot, *client))
    }

    /// The place of a client, if it is a member.
    #[must_use]
    pub fn slot(&self, client: ClientId) -> Option<MemberSlot> {
        self.slots.get(&client).copied()
    }

    /// How many partitions the topic has.
    #[must_use]
    pub fn partition_count(&self) -> usize {
        self.owners.len()
    }

    /// The owner of a partition.
    #[must_use]
    pub fn owner(&self, partition: PartitionId) -> Option<MemberSlot> {
        self.owners.get(index(partition)).copied().flatten()
    }

    /// Partitions on their way to another member.
    pub fn handovers(&self) -> impl Iterator<Item = (PartitionId, Handover)> + '_ {
        self.handovers.iter().map(|(partition, handover)| (*partition, *handover))
    }

    /// What every member owns, partitions being handed over counted with their present owner.
    #[must_use]
    pub fn assignments(&self) -> BTreeMap<MemberSlot, Vec<PartitionId>> {
        let mut all: BTreeMap<_, _> = self.members.keys().map(|slot| (*slot, vec![])).collect();
        for (place, owner) in self.owners.iter().enumerate() {
            if let Some(partitions) = owner.and_then(|owner| all.get_mut(&owner)) {
                partitions.push(partition(place));
            }
        }
        all
    }

    /// The partitions that a member should poll: those it owns, without those it hands over. None
    /// when the client is no member.
    #[must_use]
    pub fn poll_list(&self, client: ClientId) -> Option<Vec<PartitionId>> {
        let slot = self.slot(client)?;
        let everything = planted::is(Bug::TwoOwners);
        let mine = |owner: Option<MemberSlot>| owner == Some(slot) || everything;
        let owned = self.owners.iter().enumerate().filter(|(_, owner)| mine(**owner));
        let partitions = owned.map(|(place, _)| partition(place));
        Some(partitions.filter(|partition| !self.handovers.contains_key(partition)).collect())
    }

    /// What a client may do with a partition.
    #[must_use]
    pub fn ownership(&self, client: ClientId, partition: PartitionId) -> Ownership {
        let Some(slot) = self.slot(client) else { return Ownership::NotMember };
        if self.owner(partition) != Some(slot) {
            Ownership::NotOwner
        } else if self.handovers.contains_key(&partition) {
            Ownership::HandingOver
        } else {
            Ownership::Owner
        }
    }

    /// Makes a client a member. Only what the newcomer should have moves, and of that only what
    /// nobody owns moves at once. False, and nothing changes, when it is a member already.
    pub(crate) fn join(&mut self, client: ClientId, op: Op, now: Micros) -> bool {
        if self.slots.contains_key(&client) {
            return false;
        }
        let slot = MemberSlot(lowest_free(&self.members, |slot| slot.0));
        self.members.insert(slot, client);
        self.slots.insert(client, slot);
        self.generation += 1;
        if self.owners.iter().any(Option::is_none) {
            self.deal_unowned();
        }
        self.share_out(op, now);
        self.assert_invariants();
        true
    }

    /// Partitions without an owner go round the members that have none.
    fn deal_unowned(&mut self) {
        let owning: BTreeSet<MemberSlot> = self.owners.iter().flatten().copied().collect();
        let idle: Vec<MemberSlot> =
            self.members.keys().filter(|slot| !owning.contains(slot)).copied().collect();
        let takers = if idle.is_empty() { self.members.keys().copied().collect() } else { idle };
        let mut takers = takers.into_iter().cycle();
        for owner in self.owners.iter_mut().filter(|owner| owner.is_none()) {
            *owner = takers.next();
        }
    }

    /// What each member has once all hand-overs have ended, in rising order.
    fn eventual(&self) -> BTreeMap<MemberSlot, Vec<PartitionId>> {
        let mut all: BTreeMap<_, _> = self.members.keys().map(|slot| (*slot, vec![])).collect();
        for (place, owner) in self.owners.iter().enumerate() {
            let place = partition(place);
            let eventual = self.handovers.get(&place).map(|handover| handover.to).or(*owner);
            if let Some(partitions) = eventual.and_then(|owner| all.get_mut(&owner)) {
                partitions.push(place);
            }
        }
        all
    }

    /// Members above their fair share give their highest partitions to members without any. The
    /// first members in order may keep one more when the shares are uneven. Members at or below
    /// their share keep exactly what they have.
    ///
    /// When everyone had exactly the fair share before a member came, everyone has it afterwards:
    /// with the share falling, all others were above their new one; with it equal, the newcomer
    /// takes the place of the last who had one more. Dealing out anew starts from there too.
    fn share_out(&mut self, op: Op, now: Micros) {
        let mut held = self.eventual();
        let idle: Vec<MemberSlot> =
            held.iter().filter(|(_, has)| has.is_empty()).map(|(slot, _)| *slot).collect();
        if idle.is_empty() {
            return;
        }
        let (fair, larger) = (self.owners.len() / held.len(), self.owners.len() % held.len());
        let mut surplus = Vec::new();
        for (rank, has) in held.values_mut().enumerate() {
            let share = fair + usize::from(rank < larger);
            while has.len() > share {
                surplus.extend(has.pop());
            }
        }
        for (partition, to) in surplus.into_iter().zip(idle.iter().copied().cycle()) {
            self.hand_over(partition, to, op, now);
        }
    }

    /// Sends an owned partition on its way, or turns one that is on its way.
    fn hand_over(&mut self, partition: PartitionId, to: MemberSlot, op: Op, now: Micros) {
        assert!(self.owner(partition).is_some(), "what nobody owns is dealt at once");
        if self.owner(partition) == Some(to) {
            self.handovers.remove(&partition);
            return;
        }
        let handover = self.handovers.entry(partition);
        handover.or_insert(Handover { to, started: op, since: now }).to = to;
    }

    /// Ends the membership of clients; all partitions are dealt out again. False, and nothing
    /// changes, when none of them is a member.
    pub(crate) fn remove(&mut self, clients: &[ClientId]) -> bool {
        let mut removed = false;
        for client in clients {
            if let Some(slot) = self.slots.remove(client) {
                self.members.remove(&slot);
                removed = true;
            }
        }
        if removed {
            self.deal_all();
        }
        removed
    }

    /// The topic has another number of partitions now; all are dealt out again.
    pub(crate) fn resize(&mut self, partitions: usize) {
        self.owners.resize(partitions, None);
        self.deal_all();
    }

    /// Round robin over the members in order; hand-overs under way are replaced by it.
    fn deal_all(&mut self) {
        self.generation += 1;
        self.handovers.clear();
        if self.members.is_empty() {
            self.owners.fill(None);
        } else {
            let mut members = self.members.keys().copied().cycle();
            self.owners.fill_with(|| members.next());
        }
        self.assert_invariants();
    }

    /// Ends a hand-over: the partition is the target's. False, and nothing changes, when no such
    /// hand-over is under way.
    pub(crate) fn complete(&mut self, partition: PartitionId, started: Op) -> bool {
        let matches = self.handovers.get(&partition).is_some_and(|it| it.started == started);
        if !matches {
            return false;
        }
        let handover = self.handovers.remove(&partition).expect("looked up above");
        let owner = self.owners.get_mut(index(partition)).expect("a hand-over has a partition");
        *owner = Some(handover.to);
        self.generation += 1;
        true
    }

    /// Ends all hand-overs, as a purge leaves nothing to drain.
    pub(crate) fn complete_all(&mut self) {
        let all: Vec<_> = self.handovers().collect();
        for (partition, handover) in all {
            self.complete(partition, handover.started);
        }
        assert!(self.handovers.is_empty(), "every hand-over was ended");
    }

    /// The rules at the top of this module.
    pub(crate) fn assert_invariants(&self) {
        if let Some(broken) = self.broken_rule() {
            panic!("consumer group {:?}: {broken}", self.key);
        }
    }

    fn broken_rule(&self) -> Option<&'static str> {
        let is_member = |slot: &MemberSlot| self.members.contains_key(slot);
        if self.members.len() != self.slots.len() {
            return Some("a client is a member once");
        }
        if !self.owners.iter().flatten().all(is_member) {
            return Some("owners are members");
        }
        if !self.members.is_empty() && self.owners.iter().any(Option::is_none) {
            return Some("members own all partitions");
        }
        for (partition, handover) in &self.handovers {
            let owner = self.owner(*partition);
            if owner.is_none() || owner == Some(handover.to) || !is_member(&handover.to) {
                return Some("a hand-over leads from an owner to another member");
            }
        }
        None
    }
}

impl Codec for Group {
    fn put(&self, out: &mut Vec<u8>) {
        self.key.put(out);
        self.id.put(out);
        self.name.put(out);
        self.generation.put(out);
        self.members.put(out);
        self.owners.put(out);
        self.handovers.put(out);
    }

    fn get(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let mut group = Self {
            key: Codec::get(input)?,
            id: Codec::get(input)?,
            name: Codec::get(input)?,
            generation: Codec::get(input)?,
            members: Codec::get(input)?,
            slots: BTreeMap::new(),
            owners: Codec::get(input)?,
            handovers: Codec::get(input)?,
        };
        group.slots = group.members.iter().map(|(slot, client)| (*client, *slot)).collect();
        match group.broken_rule() {
            None => Ok(group),
            Some(what) => Err(DecodeError::Inconsistent { what }),
        }
    }
}
