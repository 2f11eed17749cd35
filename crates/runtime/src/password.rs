//! Password work on its own small pool of threads.
//!
//! Argon2id is slow on purpose, so it never runs on a shard's loop. Jobs queue per address and the
//! addresses take turns: a flood of wrong logins from one address delays the logins of others by
//! at most one job each.
//!
//! Invariants: at most [`PASSWORD_JOBS_MAX`] jobs wait, at most
//! [`PASSWORD_JOBS_PER_ADDRESS_MAX`] of one address; a job beyond that is handed back to the
//! caller, never dropped. Secrets have no `Debug`.

use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2, Params, Version};
use borzoi_types::limits::{PASSWORD_JOBS_MAX, PASSWORD_JOBS_PER_ADDRESS_MAX};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Memory of one hash in KiB: 19 MiB, the floor that the security expectations name.
const ARGON2_MEMORY_KIB: u32 = 19 * 1024;
/// Passes over that memory.
const ARGON2_PASSES: u32 = 2;

/// Work that a thread of the pool does: it carries its own way back.
pub type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queues {
    by_address: BTreeMap<String, VecDeque<Work>>,
    turns: VecDeque<String>,
    waiting: usize,
    stopping: bool,
}

/// The pool. Cloned into every shard; threads end when [`PasswordPool::stop`] is called.
#[derive(Clone)]
pub struct PasswordPool {
    shared: Arc<(Mutex<Queues>, Condvar)>,
}

impl PasswordPool {
    /// Starts `threads` threads.
    ///
    /// # Errors
    /// When the system refuses to start a thread.
    pub fn start(threads: usize) -> std::io::Result<Self> {
        assert!(threads > 0, "a pool without threads would never answer");
        let pool = Self { shared: Arc::new((Mutex::new(Queues::default()), Condvar::new())) };
        for index in 0..threads {
            let pool = pool.clone();
            std::thread::Builder::new()
                .name(format!("password-{index}"))
                .spawn(move || pool.work())?;
        }
        Ok(pool)
    }

    /// Queues `work` behind the other jobs of `address`.
    ///
    /// # Errors
    /// Hands `work` back when the pool or the address has reached its limit.
    pub fn submit(&self, address: &str, work: Work) -> Result<(), Work> {
        let (lock, bell) = &*self.shared;
        let mut queues = lock.lock().unwrap_or_else(PoisonError::into_inner);
        if queues.waiting >= PASSWORD_JOBS_MAX {
            return Err(work);
        }
        let queue = queues.by_address.entry(address.to_owned()).or_default();
        if queue.len() >= PASSWORD_JOBS_PER_ADDRESS_MAX {
            return Err(work);
        }
        queue.push_back(work);
        if queue.len() == 1 {
            queues.turns.push_back(address.to_owned());
        }
        queues.waiting += 1;
        drop(queues);
        bell.notify_one();
        Ok(())
    }

    /// Lets the threads end after their current job; waiting jobs are dropped.
    pub fn stop(&self) {
        let (lock, bell) = &*self.shared;
        lock.lock().unwrap_or_else(PoisonError::into_inner).stopping = true;
        bell.notify_all();
    }

    fn work(&self) {
        let (lock, bell) = &*self.shared;
        let mut queues = lock.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if queues.stopping {
                return;
            }
            let Some(work) = queues.next() else {
                queues = bell.wait(queues).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(queues);
            work();
            queues = lock.lock().unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Queues {
    /// The next job: one of the address whose turn it is, which then goes to the back.
    fn next(&mut self) -> Option<Work> {
        let address = self.turns.pop_front()?;
        let queue = self.by_address.get_mut(&address)?;
        let work = queue.pop_front();
        if queue.is_empty() {
            self.by_address.remove(&address);
        } else {
            self.turns.push_back(address);
        }
        debug_assert!(work.is_some(), "an address has a turn only while it has jobs");
        self.waiting -= usize::from(work.is_some());
        work
    }
}

fn argon2() -> Argon2<'static> {
    let params = Params::new(ARGON2_MEMORY_KIB, ARGON2_PASSES, 1, None)
        .expect("constants within the ranges of Argon2");
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

/// Hashes `password` with `salt` into the PHC text form; none if Argon2 refuses the input.
#[must_use]
pub fn hash(password: &[u8], salt: &[u8; 16]) -> Option<String> {
    let salt = SaltString::encode_b64(salt).ok()?;
    Some(argon2().hash_password(password, &salt).ok()?.to_string())
}

/// Whether `password` is the one behind `phc`. A text that is no PHC form verifies nothing, and
/// costs as much time as one that is.
#[must_use]
pub fn verify(password: &[u8], phc: &str) -> bool {
    match PasswordHash::new(phc) {
        Ok(parsed) => argon2().verify_password(password, &parsed).is_ok(),
        Err(_) => {
            spend_the_time_of_a_verification(password);
            false
        }
    }
}

/// An unknown user must cost the same time as a wrong password.
fn spend_the_time_of_a_verification(password: &[u8]) {
    let mut out = [0; 32];
    let _ = argon2().hash_password_into(password, b"borzoi-no-such-user", &mut out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_hash_verifies_its_password_and_no_other() {
        let phc = hash(b"secret", &[7; 16]).unwrap();
        assert!(phc.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{phc}");
        assert!(verify(b"secret", &phc));
        assert!(!verify(b"Secret", &phc));
        assert!(!verify(b"secret", "not a hash"));
        assert_ne!(phc, hash(b"secret", &[8; 16]).unwrap(), "the salt matters");
    }

    #[test]
    fn one_flooding_address_delays_another_by_one_job() {
        let mut queues = Queues::default();
        let (sender, receiver) = mpsc::channel();
        let mut submit = |address: &str, tag: u32| {
            let sender = sender.clone();
            let queue = queues.by_address.entry(address.to_owned()).or_default();
            queue.push_back(Box::new(move || sender.send(tag).unwrap()));
            if queue.len() == 1 {
                queues.turns.push_back(address.to_owned());
            }
            queues.waiting += 1;
        };
        for tag in 0..5 {
            submit("flood", tag);
        }
        submit("other", 100);
        while let Some(work) = queues.next() {
            work();
        }
        let order: Vec<u32> = receiver.try_iter().collect();
        assert_eq!(order, [0, 100, 1, 2, 3, 4]);
        assert_eq!(queues.waiting, 0);
        assert!(queues.by_address.is_empty());
    }

    #[test]
    fn a_full_address_gets_its_job_back_and_others_do_not() {
        let pool =
            PasswordPool { shared: Arc::new((Mutex::new(Queues::default()), Condvar::new())) };
        for _ in 0..PASSWORD_JOBS_PER_ADDRESS_MAX {
            assert!(pool.submit("one", Box::new(|| ())).is_ok());
        }
        assert!(pool.submit("one", Box::new(|| ())).is_err());
        assert!(pool.submit("two", Box::new(|| ())).is_ok());
    }
}
