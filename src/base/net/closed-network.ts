/**
 * Closes the network that all phases of a run share: what they may reach is put into its filter, which takes a
 * capability that none of them has. Docker's own server of names would carry any text out, so it is asked only where an
 * address is a name; and addresses under which clouds tell a machine's secrets are closed whatever else is open.
 */
export const closeNetwork = `
set -eu
egress=$1
shift
names=no
for address in "$@"; do
  case $address in *:*) ;; *[!0-9.]*) names=yes ;; esac
done
has6=no
if [ -s /proc/net/if_inet6 ]; then has6=yes; fi
both() { iptables -w "$@"; if [ "$has6" = yes ]; then ip6tables -w "$@"; fi; }
both -P FORWARD DROP
both -P INPUT DROP
both -A INPUT -i lo -j ACCEPT
both -A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
for address in "$@"; do
  case $address in
    *:*) if [ "$has6" = yes ]; then ip6tables -w -A OUTPUT -d "$address" -j ACCEPT; fi ;;
    *) iptables -w -A OUTPUT -d "$address" -j ACCEPT ;;
  esac
done
if [ "$names" = no ] && [ "$egress" = cluster ]; then
  iptables -w -A OUTPUT -o lo ! -d 127.0.0.11 -j ACCEPT
  if [ "$has6" = yes ]; then ip6tables -w -A OUTPUT -o lo -j ACCEPT; fi
else
  both -A OUTPUT -o lo -j ACCEPT
fi
if [ "$egress" = internet ]; then
  for closed in 169.254.0.0/16 168.63.129.16 100.100.100.200; do iptables -w -A OUTPUT -d "$closed" -j DROP; done
  if [ "$has6" = yes ]; then ip6tables -w -A OUTPUT -d fd00:ec2::254 -j DROP; fi
  both -A OUTPUT -j ACCEPT
fi
both -A OUTPUT -j REJECT || true
both -P OUTPUT DROP
echo closed
exec tail -f /dev/null
`;

/** Line that `closeNetwork` prints when the network is closed. */
export const closedLine = 'closed';
