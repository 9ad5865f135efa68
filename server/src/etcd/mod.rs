//! The client of etcd's JSON gateway, which executes the operations of [`doorman_core::etcd`].

mod client;
mod error;
mod gateway;
mod newest;
mod settings;
#[cfg(test)]
pub(crate) mod testing;
mod tls_files;

pub use self::{
    client::EtcdClient,
    error::EtcdError,
    settings::{EtcdSettings, EtcdUser},
};
