# A load balancer and its client: perl web-client.pl INSTANCES
#
# It asks all instances in turn that the cluster reports as healthy. As load balancers do, it sends
# a request to the next instance if a connection brings no byte of a response. A request fails if
# no healthy instance answers it, or if an answer is not 200. It ends when results/stop exists.
use strict;
use warnings;
use IO::Socket::INET;

my ($instances) = @ARGV;
my $share = '/srv/share';
my ($requests, $failed, $retried, $least) = (0, 0, 0, $instances);
my %versions;
my @healthy = healthy();
until (-e "$share/results/stop") {
    my @now = healthy();
    @healthy = @now if @now;
    $least = @healthy if @healthy < $least;
    for (1 .. 20) {
        request($_) for 0 .. $#healthy;
    }
}
my $seen = join ' ', sort keys %versions;
print "requests=$requests failed=$failed retried=$retried least=$least versions=$seen\n";

# Returns host and port of each healthy instance.
sub healthy {
    for my $machine ('m1', 'm2', 'm3') {
        local $ENV{FLEETCTL_ENDPOINT} = "unix://$share/$machine.sock";
        my $rows = `timeout 2 $share/fleetctl list-units --no-legend 2>/dev/null`;
        next if $?;
        my @all;
        for my $row (split /\n/, $rows) {
            push @all, [$2, 8080 + $1]
                if $row =~ m{^web\@(\d)\.service\s+\S*/(\S+)\s+active\s+running \(healthy\)\s*$};
        }
        return @all;
    }
    return ();
}

sub request {
    my ($first) = @_;
    $requests++;
    for my $offset (0 .. $#healthy) {
        my ($host, $port) = @{ $healthy[($first + $offset) % @healthy] };
        my $answer = ask($host, $port);
        if ($answer eq '') {
            $retried++;
            next;
        }
        if ($answer =~ m{^HTTP/1.0 200 OK\r\n.*\r\n\r\n(\S+)\n$}s) {
            $versions{$1} = 1;
            return;
        }
        last;
    }
    $failed++;
}

# Returns the answer; empty without an answer.
sub ask {
    my ($host, $port) = @_;
    my $socket = IO::Socket::INET->new(PeerAddr => $host, PeerPort => $port, Timeout => 2) or return '';
    local $SIG{PIPE} = 'IGNORE';
    print $socket "GET / HTTP/1.0\r\n\r\n" or return '';
    my $answer = '';
    while (my $line = <$socket>) {
        $answer .= $line;
    }
    return $answer;
}
