//! Where to connect, as whom, and how long to try.

use std::time::Duration;

/// Options of a [`crate::Client`].
#[derive(Clone)]
pub struct ClientOptions {
    /// `host:port`.
    pub address: String,
    /// User name.
    pub username: String,
    /// Password.
    pub password: String,
    /// How long a request may take in all, reconnecting and repeating included.
    pub request_timeout: Duration,
    /// Pause before a request that was not accepted is sent again.
    pub retry_pause: Duration,
}

impl ClientOptions {
    /// Options with the usual time-outs: 30 s for a request, 50 ms between repetitions.
    #[must_use]
    pub fn new(
        address: impl Into<String>,
        username: impl Into<String>,
        password: impl Into<String>,
    ) -> Self {
        Self {
            address: address.into(),
            username: username.into(),
            password: password.into(),
            request_timeout: Duration::from_secs(30),
            retry_pause: Duration::from_millis(50),
        }
    }
}

// The password is a secret: it never reaches a log.
impl std::fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientOptions")
            .field("address", &self.address)
            .field("username", &self.username)
            .field("request_timeout", &self.request_timeout)
            .finish_non_exhaustive()
    }
}
