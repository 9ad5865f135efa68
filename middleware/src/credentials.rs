//! What the leasing side shows to the control plane.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::Arc,
};

use http::HeaderValue;
use tokio::io::AsyncReadExt;

/// An error of a closure that provides tokens.
type Error = Box<dyn std::error::Error + Send + Sync>;

/// No token is longer than this; a file that is says nothing of use.
const LONGEST_TOKEN: u64 = 64 * 1024;

/// A bearer token for the control plane, or where to get one. It never shows in debug output or in logs.
///
/// ```
/// use tower_doorman::Credentials;
///
/// let fixed = Credentials::token("secret");
/// let mounted = Credentials::file("/run/doorman/token");
/// let minted = Credentials::from_fn(|| Ok("secret".to_owned()));
/// assert!(!format!("{fixed:?} {mounted:?} {minted:?}").contains("secret"));
/// ```
#[derive(Clone)]
pub struct Credentials(Kind);

#[derive(Clone)]
enum Kind {
    Token(Arc<str>),
    File(Arc<PathBuf>),
    Closure(Arc<dyn Fn() -> Result<String, Error> + Send + Sync>),
}

impl Credentials {
    /// A token that does not change.
    #[must_use]
    pub fn token(token: impl Into<String>) -> Self {
        Self(Kind::Token(token.into().into()))
    }

    /// A file that holds the token, white space around it ignored. It is read for every request, so that a token that is replaced in
    /// place, as Kubernetes does, is the one that is sent.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Kind::File(Arc::new(path.into())))
    }

    /// A closure that returns the token. It is called for every request, on the worker's task: it must not block.
    /// One that panics has failed to provide a token, as one that returns an error: the request counts as failed, and there is another.
    #[must_use]
    pub fn from_fn(
        token: impl Fn() -> Result<String, Box<dyn std::error::Error + Send + Sync>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self(Kind::Closure(Arc::new(token)))
    }

    /// The value of the `Authorization` header.
    pub(crate) async fn header(&self) -> Result<HeaderValue, Error> {
        match &self.0 {
            Kind::Token(token) => bearer(token),
            Kind::File(path) => {
                let mut text = String::new();
                let file = tokio::fs::File::open(&**path).await?;
                file.take(LONGEST_TOKEN).read_to_string(&mut text).await?;
                bearer(text.trim())
            }
            Kind::Closure(token) => bearer(&call(&**token)?),
        }
    }

    /// Whether it can be sent at all, as far as that can be told without asking for it.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match &self.0 {
            Kind::Token(token) => bearer(token).map(drop),
            Kind::File(_) | Kind::Closure(_) => Ok(()),
        }
    }
}

/// A bug in a closure costs a request, not the worker with all its leases. Whatever state the closure leaves behind is its own.
fn call(token: &(dyn Fn() -> Result<String, Error> + Send + Sync)) -> Result<String, Error> {
    catch_unwind(AssertUnwindSafe(token))
        .unwrap_or_else(|_| Err("the closure that provides the token panicked".into()))
}

fn bearer(token: &str) -> Result<HeaderValue, Error> {
    if token.is_empty() {
        return Err("the token is empty".into());
    }
    let mut value = HeaderValue::try_from(format!("Bearer {token}"))
        .map_err(|_| "the token has characters that a header cannot carry")?;
    value.set_sensitive(true);
    Ok(value)
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Token(_) => f.write_str("Credentials::token(***)"),
            Kind::File(path) => write!(f, "Credentials::file({path:?})"),
            Kind::Closure(_) => f.write_str("Credentials::from_fn(***)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn refuses_what_a_header_cannot_carry_without_repeating_it() {
        for token in ["", "sec\nret"] {
            let credentials = Credentials::token(token);
            let error = credentials.header().await.unwrap_err().to_string();
            assert!(!error.contains("ret"), "{error}");
            assert!(credentials.check().is_err());
        }
    }

    #[tokio::test]
    async fn a_closure_that_panics_has_failed() {
        let credentials = Credentials::from_fn(|| panic!("a bug"));
        let error = credentials.header().await.unwrap_err().to_string();
        assert!(error.contains("panicked"), "{error}");
    }

    #[tokio::test]
    async fn the_header_is_not_shown() {
        let header = Credentials::token("secret").header().await.unwrap();
        assert_eq!(header, "Bearer secret");
        assert!(!format!("{header:?}").contains("secret"));
    }

    #[tokio::test]
    async fn a_file_is_read_anew_each_time() {
        let path = std::env::temp_dir().join(format!("doorman-token-{}", fastrand::u64(..)));
        let credentials = Credentials::file(&path);
        assert!(credentials.header().await.is_err());
        for token in ["one", "two"] {
            std::fs::write(&path, format!(" {token}\n")).unwrap();
            let header = credentials.header().await.unwrap();
            assert_eq!(header, format!("Bearer {token}"));
        }
        std::fs::remove_file(&path).unwrap();
    }
}
