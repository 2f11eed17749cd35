//! What a replica is told when it starts.

use borzoi_types::{ClusterId, Duration, LogId, ReplicaId, View, limits};

/// Identity and timing of one replica of one log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Cluster incarnation: prepares of another are refused.
    pub cluster: ClusterId,
    /// Which log.
    pub log: LogId,
    /// This replica; below `replica_count`.
    pub replica: ReplicaId,
    /// Members of the log's group, 1..=7.
    pub replica_count: u8,
    /// Primary of view 0; the primary of view v is v places further round. The same on every
    /// replica of the log.
    pub preferred_primary: ReplicaId,
    /// Timers.
    pub timeouts: Timeouts,
    /// An operator has accepted that acknowledged operations may be lost: a view may start with a
    /// loss epoch although one replica does not answer (`borzoi recover --accept-loss`).
    pub accept_loss: bool,
}

impl Options {
    /// Panics unless the group is well formed; callers have validated configuration before.
    pub fn check(&self) {
        assert!(self.replica_count >= 1, "a log has at least one replica");
        assert!(usize::from(self.replica_count) <= limits::REPLICAS_MAX, "quorums end at seven");
        assert!(self.replica.get() < self.replica_count, "this replica is in the group");
        assert!(self.preferred_primary.get() < self.replica_count, "the preferred one too");
        self.timeouts.check();
    }

    /// The primary of `view`.
    #[must_use]
    pub fn primary_of(&self, view: View) -> ReplicaId {
        let count = u32::from(self.replica_count);
        let index = (u32::from(self.preferred_primary.get()) + view.get() % count) % count;
        ReplicaId(u8::try_from(index).expect("below replica_count"))
    }
}

/// Every timer of a replica. All spans are on the monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// How often a link sends something, however little. The replica does not send by it; the
    /// other timers are chosen against it.
    pub heartbeat: Duration,
    /// A backup that heard nothing of the primary for this long plus jitter probes for a change.
    pub election: Duration,
    /// Upper end of the random addition to `election` and `view_change`.
    pub jitter: Duration,
    /// A backup supports another's probe when it heard nothing of the primary for this long.
    pub quiet: Duration,
    /// A view change without result for this long (doubling, up to eight times) plus jitter
    /// probes for the next view.
    pub view_change: Duration,
    /// How often probes, do-view-change and start-view requests are repeated.
    pub retry: Duration,
    /// An unacknowledged prepare is sent again after this long.
    pub prepare_retry: Duration,
    /// A repair request without answer is sent to the next peer after this long.
    pub repair_retry: Duration,
    /// A primary that heard no replication quorum for this long steps down.
    pub check_quorum: Duration,
    /// A primary whose own journal completed nothing for this long steps down.
    pub journal_stuck: Duration,
}

impl Timeouts {
    /// The defaults: links speak every 100 ms, a dead primary is noticed after five to eight of
    /// those, and a view change among healthy nodes needs tens of milliseconds more.
    #[must_use]
    pub const fn standard() -> Self {
        Self {
            heartbeat: Duration::from_millis(100),
            election: Duration::from_millis(500),
            jitter: Duration::from_millis(300),
            quiet: Duration::from_millis(350),
            view_change: Duration::from_millis(500),
            retry: Duration::from_millis(100),
            prepare_retry: Duration::from_millis(100),
            repair_retry: Duration::from_millis(50),
            check_quorum: Duration::from_millis(800),
            journal_stuck: Duration::from_millis(600),
        }
    }

    fn check(&self) {
        assert!(self.heartbeat > Duration::ZERO, "a link speaks now and then");
        assert!(self.quiet.0 > 2 * self.heartbeat.0, "one lost heartbeat is not silence");
        assert!(self.election > self.quiet, "probes find support");
        assert!(self.retry > Duration::ZERO && self.prepare_retry > Duration::ZERO);
        assert!(self.repair_retry > Duration::ZERO && self.view_change > self.retry);
        assert!(self.check_quorum > self.quiet && self.journal_stuck > Duration::ZERO);
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self::standard()
    }
}
