//! The token of a user: got when it is first needed, and anew when etcd no longer takes it.

use tokio::sync::Mutex;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Request};

use super::config::EtcdUser;
use super::failure::{Failure, Kind, Odd};
use super::wire::{AuthenticateRequest, AuthenticateResponse};

type Token = MetadataValue<Ascii>;

pub(super) struct Auth {
    user: EtcdUser,
    /// Locked while one is got, so that many calls get one together.
    token: Mutex<State>,
}

enum State {
    Missing,
    Known(Token),
    /// The server asks nobody who they are.
    NotAsked,
}

impl Auth {
    pub(super) fn new(user: EtcdUser) -> Self {
        Self { user, token: Mutex::new(State::Missing) }
    }

    /// The token, which `ask` gets where there is none; nothing where the server wants none.
    pub(super) async fn token<F>(
        &self,
        ask: impl FnOnce(Request<AuthenticateRequest>) -> F,
    ) -> Result<Option<Token>, Failure>
    where
        F: Future<Output = Result<AuthenticateResponse, Failure>>,
    {
        let mut state = self.token.lock().await;
        if let State::Missing = *state {
            *state = self.get(ask).await?;
        }
        Ok(match &*state {
            State::Known(token) => Some(token.clone()),
            State::Missing | State::NotAsked => None,
        })
    }

    pub(super) async fn forget(&self) {
        *self.token.lock().await = State::Missing;
    }

    async fn get<F>(
        &self,
        ask: impl FnOnce(Request<AuthenticateRequest>) -> F,
    ) -> Result<State, Failure>
    where
        F: Future<Output = Result<AuthenticateResponse, Failure>>,
    {
        let EtcdUser { name, password } = self.user.clone();
        match ask(Request::new(AuthenticateRequest { name, password })).await {
            Ok(answer) => {
                let token = answer.token.parse();
                let odd = |_| Failure::new(Kind::Refused, Odd("a token that cannot be sent"));
                Ok(State::Known(token.map_err(odd)?))
            }
            Err(failure) if failure.code() == Some(Code::FailedPrecondition) => Ok(State::NotAsked),
            // Whatever becomes of it, what the token was for has not happened.
            Err(failure) => Err(failure.undone()),
        }
    }
}
