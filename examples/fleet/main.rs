//! A fleet that is held to one limit, before your eyes.
//!
//! Run with: `cargo run --release --example fleet`
//!
//! It starts a control plane, three services that wear the layer, each a process of its own, and a load of three times the limit
//! that shifts between them. The table shows how the leases follow the load, and that together the three admit what the limit says.
//! `--seconds 60` ends it after a minute; Ctrl-C ends it at once. Nothing is left behind.

mod child;
mod control_plane;
mod plan;
mod processes;
mod screen;
#[path = "../service.rs"]
#[expect(dead_code, reason = "its `main` is for the example of its own")]
mod service;
mod show;
mod summary;
mod table;
mod views;

use std::{error::Error, process::ExitCode};

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(about = "A fleet that is held to one limit, before your eyes")]
struct Arguments {
    #[command(flatten)]
    options: show::Options,
    #[command(subcommand)]
    role: Option<Role>,
}

/// What a process of the fleet is; the one that a person starts is none of these.
#[derive(Debug, Subcommand)]
enum Role {
    #[command(hide = true)]
    ControlPlane(control_plane::Arguments),
    #[command(hide = true)]
    Service(service::Arguments),
}

#[tokio::main]
#[expect(clippy::print_stderr, reason = "a program says why it ends")]
async fn main() -> ExitCode {
    let Arguments { options, role } = Arguments::parse();
    match run(options, role).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fleet: {}", service::in_one_line(&*error));
            ExitCode::FAILURE
        }
    }
}

async fn run(options: show::Options, role: Option<Role>) -> Result<(), Box<dyn Error>> {
    match role {
        Some(Role::ControlPlane(arguments)) => {
            control_plane::run(arguments, child::parent_lets_go()).await
        }
        Some(Role::Service(arguments)) => service::run(arguments, child::parent_lets_go()).await,
        None => show::run(options, service::told_to_end()?).await,
    }
}
