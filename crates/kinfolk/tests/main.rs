//! The tests of the library from outside, in one program: compiling and linking many takes far longer than running them.

mod bottom_up;
mod browser;
mod by_hand;
mod conformance;
mod elsewhere;
mod experiments;
mod fit_elsewhere;
mod goes_on;
mod hostile;
mod hostile_server;
mod known_clusters;
mod lambda;
mod layout;
mod library;
mod loopback;
mod mixtures;
mod one_shot;
mod own_clients;
mod personal;
mod policy;
mod privacy;
mod privacy_elsewhere;
mod runs;
mod sealed;
mod secure;
mod tables;
