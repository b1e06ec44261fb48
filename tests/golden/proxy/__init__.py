"""The proxy's whole rulesets: `*.rules` of the iptables mode, `*.nft` of the nftables mode."""
