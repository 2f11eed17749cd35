//! The ingest budgets of one shard: bytes of frames that were accepted and are not answered yet.
//!
//! A reader charges a frame *before* it reads the body and is suspended while the budget is
//! spent, so memory is bounded and the pressure reaches the peer through its socket.
//!
//! Invariants: charges are granted in arrival order, so a large frame is not starved by small
//! ones; what was charged is given back exactly once, through [`Ingest::release`].

use borzoi_types::limits::SOCKET_READ_BYTES;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use tokio::sync::oneshot;

/// The budgets of small and of large frames: who announces a large frame and does not send it
/// holds up nobody whose frames are small.
pub struct Budgets {
    small: Rc<Ingest>,
    large: Rc<Ingest>,
}

impl Budgets {
    /// Budgets of so many bytes.
    #[must_use]
    pub fn new(small_bytes_max: usize, large_bytes_max: usize) -> Rc<Self> {
        Rc::new(Self { small: Ingest::new(small_bytes_max), large: Ingest::new(large_bytes_max) })
    }

    /// The budget of a frame of `bytes`, which is charged and released there.
    #[must_use]
    pub fn of(&self, bytes: usize) -> &Ingest {
        if bytes < SOCKET_READ_BYTES { &self.small } else { &self.large }
    }

    /// Stops or resumes granting.
    pub fn hold(&self, held: bool) {
        self.small.hold(held);
        self.large.hold(held);
    }

    /// Whether large frames wait for room that others have taken.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        !self.large.held.get() && !self.large.waiting.borrow().is_empty()
    }

    /// Bytes charged now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.small.used() + self.large.used()
    }
}

/// One budget; lives on the shard's thread.
pub struct Ingest {
    bytes_max: usize,
    used: Cell<usize>,
    /// While set nothing is granted: another shard's queue is full.
    held: Cell<bool>,
    waiting: RefCell<VecDeque<(usize, oneshot::Sender<()>)>>,
}

impl Ingest {
    /// A budget of `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Rc<Self> {
        Rc::new(Self {
            bytes_max,
            used: Cell::new(0),
            held: Cell::new(false),
            waiting: RefCell::default(),
        })
    }

    /// Bytes charged now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.get()
    }

    /// Charges `bytes` if that is possible at once.
    #[must_use]
    pub fn try_charge(&self, bytes: usize) -> bool {
        let free = self.fits(bytes) && self.waiting.borrow().is_empty();
        if free {
            self.used.set(self.used.get() + bytes);
        }
        free
    }

    /// Charges `bytes`, waiting for its turn.
    pub async fn charge(&self, bytes: usize) {
        if self.try_charge(bytes) {
            return;
        }
        let (grant, granted) = oneshot::channel();
        self.waiting.borrow_mut().push_back((bytes, grant));
        let mut turn = Turn { ingest: self, granted, bytes, taken: false };
        // The sender lives in `waiting` until it grants; a dropped one means that the shard ends.
        let _ = (&mut turn.granted).await;
        turn.taken = true;
    }

    /// Gives `bytes` back and grants what fits now.
    pub fn release(&self, bytes: usize) {
        assert!(bytes <= self.used.get(), "released more than was charged");
        self.used.set(self.used.get() - bytes);
        self.grant();
    }

    /// Stops or resumes granting.
    pub fn hold(&self, held: bool) {
        if self.held.replace(held) && !held {
            self.grant();
        }
    }

    /// A frame larger than the whole budget is admitted when nothing else is.
    fn fits(&self, bytes: usize) -> bool {
        !self.held.get() && (self.used.get() == 0 || self.used.get() + bytes <= self.bytes_max)
    }

    fn grant(&self) {
        let mut waiting = self.waiting.borrow_mut();
        while let Some((bytes, _)) = waiting.front() {
            let bytes = *bytes;
            if !self.fits(bytes) {
                return;
            }
            let (_, grant) = waiting.pop_front().expect("the front was just seen");
            if grant.send(()).is_ok() {
                self.used.set(self.used.get() + bytes);
            }
        }
    }
}

/// A place in the queue. Given up between the grant and its notice, it gives the bytes back.
struct Turn<'a> {
    ingest: &'a Ingest,
    granted: oneshot::Receiver<()>,
    bytes: usize,
    taken: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.taken && self.granted.try_recv().is_ok() {
            self.ingest.release(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn a_large_frame_waits_its_turn_and_is_not_overtaken() {
        block_on(async {
            let ingest = Ingest::new(100);
            assert!(ingest.try_charge(60));
            let order = Rc::new(RefCell::new(Vec::new()));
            let local = tokio::task::LocalSet::new();
            for bytes in [80, 10] {
                let (ingest, order) = (ingest.clone(), order.clone());
                local.spawn_local(async move {
                    ingest.charge(bytes).await;
                    order.borrow_mut().push(bytes);
                });
            }
            local.run_until(tokio::task::yield_now()).await;
            assert!(order.borrow().is_empty());
            assert!(!ingest.try_charge(1), "behind those who wait");
            ingest.release(60);
            local.await;
            assert_eq!(*order.borrow(), [80, 10]);
            assert_eq!(ingest.used(), 90);
        });
    }

    #[test]
    fn large_frames_that_are_announced_hold_up_no_small_ones() {
        let budgets = Budgets::new(SOCKET_READ_BYTES, 4 * SOCKET_READ_BYTES);
        let large = 2 * SOCKET_READ_BYTES;
        assert!(budgets.of(large).try_charge(large));
        assert!(budgets.of(large).try_charge(large));
        assert!(!budgets.of(large).try_charge(large));
        assert!(!budgets.is_contended(), "nobody waits for it");
        assert!(budgets.of(256).try_charge(256));
        budgets.of(large).release(large);
        assert!(budgets.of(large).try_charge(large));
        assert_eq!(budgets.used(), 2 * large + 256);
    }

    #[test]
    fn a_frame_beyond_the_budget_passes_alone_and_a_held_budget_grants_nothing() {
        let ingest = Ingest::new(100);
        assert!(ingest.try_charge(1_000));
        assert!(!ingest.try_charge(1));
        ingest.release(1_000);
        ingest.hold(true);
        assert!(!ingest.try_charge(1));
        ingest.hold(false);
        assert!(ingest.try_charge(1));
    }

    #[test]
    fn a_reader_that_went_away_is_charged_nothing() {
        block_on(async {
            let ingest = Ingest::new(10);
            assert!(ingest.try_charge(10));
            {
                let waiting = ingest.charge(5);
                tokio::pin!(waiting);
                let polled = futures_poll_once(waiting.as_mut()).await;
                assert!(!polled);
            }
            ingest.release(10);
            assert_eq!(ingest.used(), 0);
        });
    }

    async fn futures_poll_once<F: Future<Output = ()>>(future: std::pin::Pin<&mut F>) -> bool {
        let mut future = Some(future);
        std::future::poll_fn(move |context| {
            let future = future.take().expect("polled once");
            std::task::Poll::Ready(future.poll(context).is_ready())
        })
        .await
    }
}
