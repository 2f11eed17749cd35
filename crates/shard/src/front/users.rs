//! Users: passwords are hashed off the loop before a command carries them.

use super::login::PasswordWait;
use super::reads::or_return;
use super::request::{Caller, Known, Step};
use super::{Cx, Front};
use crate::event::{PasswordJob, PasswordOutcome, Secret};
use borzoi_metadata::{Action, Change, CreateUser, PasswordHash, check_password, no_options};
use borzoi_wire::{ErrorCode, Identifier, body};

/// A request that waits for the password thread.
#[derive(Debug)]
pub(crate) struct PasswordStep {
    pub(crate) caller: Caller,
    then: Then,
}

/// What follows the password job.
#[derive(Debug)]
enum Then {
    /// The hash goes into a new user.
    Create(Box<CreateUser>),
    /// The current password is verified; the new one is hashed next.
    Hash { user: Identifier, verified: PasswordHash, new: Secret },
    /// The hash replaces the one that was verified.
    Change { user: Identifier, verified: PasswordHash },
}

impl Front {
    pub(super) fn create_user(
        &mut self,
        caller: &Caller,
        request: body::CreateUser,
        cx: &mut Cx<'_>,
    ) -> Step {
        if let Err(code) = no_options(&request.options.0) {
            return self.deny(caller, code);
        }
        if let Err(code) = check_password(request.password.reveal()) {
            return self.deny(caller, code);
        }
        // Hashing is expensive: who may not create users does not get it done.
        if self.metadata.authorise(caller.binding.user, Action::CreateUser).is_err()
            && self.host.is_some()
        {
            return self.deny(caller, ErrorCode::Unauthorized);
        }
        let user = CreateUser {
            name: request.name,
            password: PasswordHash(String::new()),
            status: request.status,
            permissions: request.permissions.as_ref().map(Into::into),
        };
        let password = Secret(request.password.reveal().to_owned());
        self.hash_password(caller, password, Then::Create(Box::new(user)), cx)
    }

    fn hash_password(
        &mut self,
        caller: &Caller,
        password: Secret,
        then: Then,
        cx: &mut Cx<'_>,
    ) -> Step {
        let mut salt = [0; 16];
        self.random.fill(&mut salt);
        let job = PasswordJob::Hash { password, salt };
        let step = PasswordStep { caller: *caller, then };
        self.start_password_job(job, PasswordWait::User(Box::new(step)), cx);
        Step::Pending
    }

    pub(super) fn change_password(
        &mut self,
        caller: &Caller,
        known: Known<'_>,
        request: body::ChangePassword,
        cx: &mut Cx<'_>,
    ) -> Step {
        if let Err(code) = check_password(request.new.reveal()) {
            return self.deny(caller, code);
        }
        let (key, phc) = match self.metadata.find_user(&request.user) {
            Ok(user) => (user.key, user.password.clone()),
            Err(code) => return self.refuse(caller, known, code),
        };
        or_return!(self.authorise(caller, known, Action::ChangePassword(key)));
        let password = Secret(request.current.reveal().to_owned());
        let job = PasswordJob::Verify { password, phc: phc.0.clone() };
        let new = Secret(request.new.reveal().to_owned());
        let then = Then::Hash { user: request.user, verified: phc, new };
        let step = PasswordStep { caller: *caller, then };
        self.start_password_job(job, PasswordWait::User(Box::new(step)), cx);
        Step::Pending
    }

    pub(super) fn user_password_done(
        &mut self,
        step: PasswordStep,
        outcome: PasswordOutcome,
        cx: &mut Cx<'_>,
    ) {
        let PasswordStep { caller, then } = step;
        if !self.connections.contains_key(&caller.place.connection) {
            return;
        }
        let step = match (then, outcome) {
            (Then::Create(user), PasswordOutcome::Hashed(phc)) => {
                let user = CreateUser { password: PasswordHash(phc), ..*user };
                self.change(&caller, Change::CreateUser(user), cx)
            }
            (Then::Hash { user, verified, new }, PasswordOutcome::Verified(true)) => {
                self.hash_password(&caller, new, Then::Change { user, verified }, cx)
            }
            (Then::Hash { .. }, PasswordOutcome::Verified(false)) => {
                self.deny(&caller, ErrorCode::InvalidCredentials)
            }
            (Then::Change { user, verified }, PasswordOutcome::Hashed(phc)) => {
                let password = PasswordHash(phc);
                self.change(&caller, Change::ChangePassword { user, verified, password }, cx)
            }
            (_, PasswordOutcome::Refused) => {
                self.transient(&caller.to, ErrorCode::TransientNotAccepted)
            }
            (then, outcome) => panic!("{then:?} cannot be answered with {outcome:?}"),
        };
        self.finish_step(caller.place, step, cx);
    }

    pub(super) fn update_user(
        &mut self,
        caller: &Caller,
        request: body::UpdateUser,
        cx: &mut Cx<'_>,
    ) -> Step {
        if let Err(code) = no_options(&request.options.0) {
            return self.deny(caller, code);
        }
        let body::UpdateUser { user, name, status, options: _ } = request;
        let change = Change::UpdateUser { user, name, status };
        self.change(caller, change, cx)
    }

    pub(super) fn update_permissions(
        &mut self,
        caller: &Caller,
        request: body::UpdatePermissions,
        cx: &mut Cx<'_>,
    ) -> Step {
        let permissions = request.permissions.as_ref().map(Into::into);
        self.change(caller, Change::UpdatePermissions { user: request.user, permissions }, cx)
    }
}
