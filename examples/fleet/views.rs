//! What the processes say of themselves, over HTTP as anybody could ask them.

use std::{net::SocketAddr, time::Duration};

use doorman_openapi::ResourceView;
use serde::{Deserialize, de::DeserializeOwned};

use crate::plan::INSTANCES;

/// Whom to ask.
#[derive(Debug)]
pub(crate) struct Views {
    client: reqwest::Client,
    books: String,
    limits: [String; INSTANCES],
}

/// What `GET /doorman` of a service says, as far as it is shown.
#[derive(Debug, Deserialize)]
struct Snapshot {
    limits: Vec<Limit>,
}

#[derive(Debug, Deserialize)]
struct Limit {
    lease: Option<Lease>,
}

#[derive(Debug, Deserialize)]
struct Lease {
    capacity: f64,
}

impl Views {
    pub(crate) fn new(
        control_plane: SocketAddr,
        services: [SocketAddr; INSTANCES],
    ) -> reqwest::Result<Self> {
        Ok(Self {
            client: reqwest::Client::builder()
                .no_proxy()
                // Nothing is encrypted: a machine without certificates will do.
                .tls_certs_only([])
                .timeout(Duration::from_millis(500))
                .build()?,
            books: format!("http://{control_plane}/v1/resources/api"),
            limits: services.map(|service| format!("http://{service}/doorman")),
        })
    }

    /// The control plane's view of the resource; `None` when it has none.
    pub(crate) async fn books(&self) -> Option<ResourceView> {
        self.get(&self.books).await
    }

    /// What each service has leased; `None` when it has nothing, or does not answer.
    pub(crate) async fn leases(&self) -> [Option<f64>; INSTANCES] {
        let [first, second, third] = self.limits.each_ref().map(|url| self.lease(url));
        tokio::join!(first, second, third).into()
    }

    async fn lease(&self, url: &str) -> Option<f64> {
        let snapshot: Snapshot = self.get(url).await?;
        Some(snapshot.limits.into_iter().next()?.lease?.capacity)
    }

    async fn get<T: DeserializeOwned>(&self, url: &str) -> Option<T> {
        let answer = self.client.get(url).send().await.ok()?;
        let body = answer.error_for_status().ok()?.bytes().await.ok()?;
        serde_json::from_slice(&body).ok()
    }
}
