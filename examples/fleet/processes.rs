//! The processes of the fleet: one control plane and its services.

use std::{
    error::Error,
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
};

use crate::{child::Child, plan::INSTANCES};

/// All processes but this one. Dropped, they end by themselves; [`stop`](Self::stop) waits for it.
#[derive(Debug)]
pub(crate) struct Processes {
    control_plane: Listening,
    services: [Listening; INSTANCES],
}

/// A process that listens.
#[derive(Debug)]
struct Listening {
    process: Child,
    address: SocketAddr,
}

impl Processes {
    /// Starts them all, and waits until each listens.
    pub(crate) async fn start(port: u16, limit: f64) -> Result<Self, Box<dyn Error>> {
        // Only to say it well: the control plane would not start on it either.
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| {
            format!("cannot listen on port {port}: {error}; choose another with --port")
        })?;
        let control_plane = Listening::start(&[
            "control-plane",
            &format!("--port={port}"),
            &format!("--limit={limit}"),
        ])
        .await?;
        let server = format!("--server=http://{}", control_plane.address);
        let service = ["service", "--listen=127.0.0.1:0", &server];
        let (first, second, third) = tokio::try_join!(
            Listening::start(&service),
            Listening::start(&service),
            Listening::start(&service),
        )?;
        Ok(Self {
            control_plane,
            services: [first, second, third],
        })
    }

    /// Where the control plane listens.
    pub(crate) fn control_plane(&self) -> SocketAddr {
        self.control_plane.address
    }

    /// Where the services listen.
    pub(crate) fn services(&self) -> [SocketAddr; INSTANCES] {
        self.services.each_ref().map(|service| service.address)
    }

    /// Waits until one of them has ended by itself, which none should; says which.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(crate) async fn ended(&mut self) -> String {
        let [first, second, third] = &mut self.services;
        tokio::select! {
            ended = self.control_plane.process.ended() => format!("the control plane ended: {ended}"),
            ended = first.process.ended() => format!("the service at {} ended: {ended}", first.address),
            ended = second.process.ended() => format!("the service at {} ended: {ended}", second.address),
            ended = third.process.ended() => format!("the service at {} ended: {ended}", third.address),
        }
    }

    /// Ends them all: first the services, which give their leases back.
    pub(crate) async fn stop(self) -> io::Result<()> {
        let [first, second, third] = self.services.map(|service| service.process.stop());
        tokio::try_join!(first, second, third)?;
        self.control_plane.process.stop().await
    }
}

impl Listening {
    /// Starts a process that says on its first line where it listens.
    async fn start(arguments: &[&str]) -> Result<Self, Box<dyn Error>> {
        let mut process = Child::start(arguments)?;
        let line = process.first_line().await?;
        let address = line
            .strip_prefix("listening on http://")
            .and_then(|address| address.parse().ok())
            .ok_or_else(|| format!("{} did not start", arguments.join(" ")))?;
        Ok(Self { process, address })
    }
}
